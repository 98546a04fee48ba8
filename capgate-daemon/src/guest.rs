//! One connection to its end: the greeting, then requests and answers.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use capgate_common::protocol::{
    self, MAX_REQUEST, OLDEST_VERSION, Request, Response, Start, VERSION,
};
use serde::Deserialize;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::watch,
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    connection::{Connection, ConnectionError},
    job::Job,
    jobs::Found,
    lease::{Ending, Lease},
    peer::Peer,
    refusal::JobError,
    server::{Context, Seat},
    tail::{self, Followed, Kinds},
};

/// How long a connection may be silent when it holds no lease and follows nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// The same of one inside a job, which has one question and nothing to think about.
const INSIDE_SILENCE: Duration = Duration::from_secs(5);
/// How long opening a job may take, the client's file systems included.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// How long ending a job may take: leftovers, the kill, and looking at the client's file systems.
const END_PATIENCE: Duration = Duration::from_secs(120);

/// Where a peer is.
enum Place {
    /// In no job.
    Outside,
    /// In this one, of this daemon.
    Inside(Arc<Job>),
}

/// What happens after a request.
enum Next {
    /// The connection goes on.
    Go,
    /// It ends.
    End,
}

/// Enough of a greeting to tell versions apart: those of other versions may have more in them.
#[derive(Deserialize)]
struct Greeting {
    request: String,
    version: u32,
    #[serde(default)]
    program: String,
}

/// One connection with all that belongs to it.
pub(crate) struct Guest {
    context: Arc<Context>,
    connection: Connection,
    peer: Arc<Peer>,
    lease: Option<Lease>,
    /// How long it may say nothing while it holds no lease.
    silence: Duration,
    /// Becomes readable when the client's process ends. A lease does not outlive it, even if some other process holds the
    /// connection open.
    client: Option<AsyncFd<OwnedFd>>,
    stopped: watch::Receiver<bool>,
    _seat: Seat,
}

impl Guest {
    /// A connection that was just accepted.
    pub(crate) fn new(
        context: Arc<Context>,
        connection: Connection,
        peer: Arc<Peer>,
        stopped: watch::Receiver<bool>,
        seat: Seat,
    ) -> Self {
        Self {
            context,
            connection,
            peer,
            lease: None,
            silence: SILENCE,
            client: None,
            stopped,
            _seat: seat,
        }
    }

    /// Serves it to its end. A lease that is left is given up.
    pub(crate) async fn serve(mut self) {
        let result = self.talk().await;
        if let Err(error) = &result {
            tracing::debug!(pid = self.peer.pid, uid = self.peer.uid, %error, "connection ended");
            let message = error.to_string();
            // It may be the connection itself that does not work.
            let _broken = self.connection.send(Response::Error { message }).await;
        }
        if let Some(lease) = self.lease.take() {
            let why = if *self.stopped.borrow() {
                "capgated was stopped".to_owned()
            } else {
                match result {
                    Ok(()) => "its client went away".to_owned(),
                    Err(error) => format!("its client failed: {error}"),
                }
            };
            let _lost = self.end(lease, Ending::Abandoned(why)).await;
            if *self.stopped.borrow() {
                let message = "capgated was stopped: the job was killed and is lost".to_owned();
                let _broken = self.connection.send(Response::Error { message }).await;
            }
            self.context.lease_ended.notify_one();
        }
    }

    /// Requests and answers until one side has had enough.
    async fn talk(&mut self) -> Result<(), ConnectionError> {
        let Some(line) = self.line().await? else {
            return Ok(());
        };
        if !self.greet(&line).await? {
            return Ok(());
        }
        while let Some(line) = self.line().await? {
            let request = protocol::decode::<Request>(&line, MAX_REQUEST)?;
            let place = match (self.place(), &request) {
                (Ok(Place::Inside(job)), Request::Capability { name, unit }) => {
                    let answer = job.need(name, unit);
                    let answer = answer
                        .map(|(meaning, absent)| Response::Capability { meaning, absent })
                        .map_err(|error| error.to_string());
                    self.reply(answer).await?;
                    // A job does not get to hold its user's connections.
                    return Ok(());
                }
                (Ok(Place::Inside(_)), _) => Err(self.inside()),
                (Ok(Place::Outside), _) => Ok(()),
                (Err(sentence), _) => Err(sentence),
            };
            if let Err(sentence) = place {
                self.refuse(sentence).await?;
                return Ok(());
            }
            match self.answer(request).await? {
                Next::Go => {}
                Next::End => return Ok(()),
            }
        }
        Ok(())
    }

    /// The next line; `None` at the end, when the daemon stops, or when nothing is said for too long.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, ConnectionError> {
        let silence = if self.lease.is_some() {
            Duration::MAX
        } else {
            self.silence
        };
        let client = async {
            match &self.client {
                // An error would say that the descriptor is none; the connection's own end still counts then.
                Some(client) if client.readable().await.is_ok() => {}
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            // First what was said before the end.
            biased;
            line = timeout(silence, self.connection.line()) => line.unwrap_or(Ok(None)),
            () = client => Ok(None),
            _ = self.stopped.wait_for(|stopped| *stopped) => Ok(None),
        }
    }

    async fn greet(&mut self, line: &[u8]) -> Result<bool, ConnectionError> {
        let greeting: Greeting = protocol::decode(line, MAX_REQUEST)?;
        if greeting.request != "hello" {
            self.refuse("a connection begins with hello".to_owned())
                .await?;
            return Ok(false);
        }
        if !(OLDEST_VERSION..=VERSION).contains(&greeting.version) {
            let program: String = greeting.program.chars().take(64).collect();
            self.refuse(format!(
                "capgate {program} speaks version {} of the protocol, this capgated {} speaks {OLDEST_VERSION} to {VERSION}: \
                 install the same release of both",
                greeting.version,
                env!("CARGO_PKG_VERSION"),
            ))
            .await?;
            return Ok(false);
        }
        match self.place() {
            Err(sentence) => {
                self.refuse(sentence).await?;
                return Ok(false);
            }
            Ok(Place::Inside(_)) => self.silence = INSIDE_SILENCE,
            Ok(Place::Outside) => {}
        }
        self.connection
            .send(Response::Hello {
                version: greeting.version,
                program: env!("CARGO_PKG_VERSION").to_owned(),
            })
            .await?;
        Ok(true)
    }

    /// Where the peer is now. Nothing that runs inside another daemon's job is served.
    fn place(&self) -> Result<Place, String> {
        let jobs = &self.context.jobs;
        let path = self.peer.cgroup().map_err(|error| error.to_string())?;
        match jobs.holding(&path) {
            Some(job) => Ok(Place::Inside(job)),
            None if jobs.hierarchy().inside_job(&path) => Err(self.inside()),
            None => Ok(Place::Outside),
        }
    }

    fn inside(&self) -> String {
        format!(
            "process {} runs inside a job, and capgated serves nothing that does",
            self.peer.pid
        )
    }

    async fn refuse(&mut self, message: String) -> Result<(), ConnectionError> {
        tracing::info!(pid = self.peer.pid, uid = self.peer.uid, %message, "request refused");
        self.connection.send(Response::Error { message }).await
    }

    async fn answer(&mut self, request: Request) -> Result<Next, ConnectionError> {
        match request {
            Request::Hello { .. } => {
                self.refuse("hello comes once".to_owned()).await?;
                return Ok(Next::End);
            }
            Request::Start(start) => return self.start(*start).await,
            Request::Enter { token } => {
                let (jobs, peer) = (Arc::clone(&self.context.jobs), Arc::clone(&self.peer));
                let entered = blocking(move || jobs.enter(&peer, &token)).await;
                self.reply(entered.map(|_| Response::Entered)).await?;
                // What it does from now on, it does inside the job.
                return Ok(Next::End);
            }
            Request::Finish { outcome } => {
                let sealed = match self.lease.take() {
                    None => Err("only the connection that started a job can finish it".to_owned()),
                    Some(lease) => self.end(lease, Ending::Finished(outcome)).await,
                };
                let response = sealed.map(|sealed| Response::Sealed(Box::new(sealed)));
                let sent = self.reply(response).await;
                self.context.lease_ended.notify_one();
                sent?;
            }
            Request::Stop { job } => {
                let stopped = self.stop(job).await;
                self.reply(stopped.map(|()| Response::Stopped)).await?;
            }
            Request::Ps => {
                let (jobs, peer) = (Arc::clone(&self.context.jobs), Arc::clone(&self.peer));
                let list = blocking(move || jobs.list(&peer)).await;
                self.reply(list.map(|jobs| Response::Jobs { jobs })).await?;
            }
            Request::Show { job } => {
                let (jobs, peer) = (Arc::clone(&self.context.jobs), Arc::clone(&self.peer));
                let sealed = blocking(move || jobs.show(&peer, &job)).await;
                self.reply(sealed.map(|sealed| Response::Sealed(Box::new(sealed))))
                    .await?;
            }
            Request::Tail {
                job,
                kinds,
                backlog,
            } => return self.tail(job, kinds, backlog).await,
            Request::Capability { .. } => {
                self.refuse(
                    "only a process inside a job can be told what its job lacks".to_owned(),
                )
                .await?;
            }
            Request::Status => {
                let jobs = Arc::clone(&self.context.jobs);
                let status = blocking(move || Ok(jobs.status())).await;
                self.reply(status.map(|status| Response::Status(Box::new(status))))
                    .await?;
            }
        }
        Ok(Next::Go)
    }

    /// Sends an answer, or the sentence that says why there is none.
    async fn reply(&mut self, response: Result<Response, String>) -> Result<(), ConnectionError> {
        match response {
            Ok(response) => match self.connection.send(response).await {
                Err(ConnectionError::Frame(error)) => {
                    self.refuse(format!("the answer is {error}")).await
                }
                other => other,
            },
            Err(sentence) => self.refuse(sentence).await,
        }
    }

    async fn start(&mut self, start: Start) -> Result<Next, ConnectionError> {
        let descriptors = self.connection.take_descriptors();
        if self.lease.is_some() {
            self.refuse("this connection has started a job before".to_owned())
                .await?;
            return Ok(Next::Go);
        }
        let jobs = Arc::clone(&self.context.jobs);
        // Taken here and not in the thread, so that a start whose file system hangs counts.
        let slot = match jobs.reserve(self.peer.uid) {
            Ok(slot) => slot,
            Err(error) => {
                self.refuse(error.to_string()).await?;
                return Ok(Next::Go);
            }
        };
        // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and it lives in the result. The safe
        // constructors are deprecated, since they take types of which this is not true.
        let client =
            unsafe { AsyncFd::register_with_interest(self.peer.pidfd()?, Interest::READABLE) }
                .map_err(std::io::Error::from)?;
        let peer = Arc::clone(&self.peer);
        // A lease that comes too late is dropped by the thread, and so its job is.
        let started = timeout(
            START_PATIENCE,
            blocking(move || match jobs.start(slot, &peer, start, descriptors) {
                Ok(lease) => Ok(Ok(lease)),
                Err(JobError::Lacking(absent)) => Ok(Err(absent)),
                Err(error) => Err(error),
            }),
        )
        .await
        .unwrap_or_else(|_| {
            Err(format!(
                "the job could not be opened within {} seconds: a file system of its root directory does not answer",
                START_PATIENCE.as_secs()
            ))
        });
        let response = match started {
            Err(sentence) => Err(sentence),
            Ok(Err(absent)) => Ok(Response::Lacking { absent }),
            Ok(Ok(lease)) => {
                let job = lease.job();
                let response = Response::Started {
                    job: job.id.to_string(),
                    token: job.token().to_owned(),
                    notes: Vec::new(),
                };
                self.client = Some(client);
                self.lease = Some(lease);
                self.context.lease_given.notify_one();
                Ok(response)
            }
        };
        self.reply(response).await?;
        Ok(Next::Go)
    }

    /// Brings a job to its end in a thread of its own; a job whose end does not come is given up.
    async fn end(&self, lease: Lease, ending: Ending) -> Result<protocol::Sealed, String> {
        let job = Arc::clone(lease.job());
        let ended = timeout(END_PATIENCE, blocking(move || lease.end(&ending))).await;
        let ended = match ended {
            Ok(ended) => ended,
            Err(_) => {
                let jobs = Arc::clone(&self.context.jobs);
                let stuck = Arc::clone(&job);
                // A panic in it is in the log.
                let _done = spawn_blocking(move || jobs.give_up(&stuck)).await;
                Err(format!(
                    "job {} could not be sealed within {} seconds and is lost",
                    job.id,
                    END_PATIENCE.as_secs()
                ))
            }
        };
        self.context.job_ended.notify_one();
        ended
    }

    /// Stops the job of this connection, or, for root, any.
    async fn stop(&self, job: Option<String>) -> Result<(), String> {
        let own = self.lease.as_ref().map(|lease| Arc::clone(lease.job()));
        match (job, own) {
            (None, None) => Err("this connection has no job to stop: name one".to_owned()),
            (job, Some(own)) if job.as_deref().is_none_or(|job| job == own.id.as_str()) => {
                blocking(move || own.stop("its client").map_err(JobError::from)).await
            }
            (Some(job), _) => {
                let (jobs, peer) = (Arc::clone(&self.context.jobs), Arc::clone(&self.peer));
                blocking(move || jobs.stop(&peer, &job)).await
            }
            (None, Some(_)) => Err("this connection has no job to stop: name one".to_owned()),
        }
    }

    /// Follows a job to its end.
    async fn tail(
        &mut self,
        job: String,
        kinds: Vec<String>,
        backlog: bool,
    ) -> Result<Next, ConnectionError> {
        let kinds = match Kinds::new(kinds) {
            Ok(kinds) => kinds,
            Err(sentence) => {
                self.refuse(sentence).await?;
                return Ok(Next::Go);
            }
        };
        let (jobs, peer) = (Arc::clone(&self.context.jobs), Arc::clone(&self.peer));
        let job = match blocking(move || jobs.find(&peer, &job)).await {
            Ok(Found::Running(job)) => job,
            Ok(Found::Over(verdict)) => {
                self.connection.send(Response::End { verdict }).await?;
                return Ok(Next::Go);
            }
            Err(sentence) => {
                self.refuse(sentence).await?;
                return Ok(Next::Go);
            }
        };
        let stopped = self.stopped.clone();
        let followed = tail::follow(&mut self.connection, stopped, &job, kinds, backlog).await?;
        Ok(match followed {
            Followed::Job => Next::Go,
            Followed::Reader => Next::End,
        })
    }
}

/// Runs something that may wait in a thread that may; its error as a sentence.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
) -> Result<T, String> {
    match spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => {
            tracing::error!(%error, "a request failed");
            Err("capgated failed in itself; its log says how".to_owned())
        }
    }
}
