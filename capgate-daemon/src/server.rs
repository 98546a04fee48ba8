//! Accepts connections, checks who is there, serves each in a task of its own, and ends in order.

use std::{
    collections::HashMap,
    future::Future,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capgate_common::{
    event::KIND_NAMES,
    protocol::{self, MAX_REQUEST, OLDEST_VERSION, Request, Response, Start, VERSION},
};
use serde::Deserialize;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, Semaphore, broadcast::error::RecvError, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    connection::{Connection, ConnectionError},
    jobs::{Ending, Followed, JobError, Jobs, Lease},
    notify,
    peer::{Home, Peer},
};

/// How long a connection may be silent when it holds no lease and follows nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How long opening a job may take, the client's file systems included.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long ending a job may take: leftovers, the kill, and looking at the client's file systems.
const END_PATIENCE: Duration = Duration::from_secs(120);
/// How long connections may take to end when the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a private daemon waits for its client.
const LEASE_PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait when no more connections can be accepted, as when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Long requests of one user that are received at the same time.
const LONG_REQUESTS: usize = 8;
/// Bytes of events that are sent together.
const BATCH: usize = 64 << 10;

/// Whom the daemon serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Root, and members of a group when it exists.
    Service {
        /// The group.
        gid: Option<u32>,
    },
    /// One user, for one job, and root.
    Private {
        /// The user.
        uid: u32,
    },
}

impl Admission {
    /// Whether the peer is served at all. A peer in other namespaces than the host's is no member of any group of the host, but
    /// it could connect: so somebody gave it the socket, by a mount or by its own file permissions.
    fn admits(self, peer: &Peer) -> bool {
        match self {
            Self::Private { uid } => peer.uid == uid || peer.home && peer.uid == 0,
            Self::Service { gid } => {
                !peer.home || peer.uid == 0 || gid.is_some_and(|gid| peer.gids.contains(&gid))
            }
        }
    }
}

/// What the connections of one user share.
struct Guest {
    connections: usize,
    room: Arc<Semaphore>,
}

/// What all connections share.
pub struct Context {
    jobs: Arc<Jobs>,
    home: Home,
    admission: Admission,
    guests: Mutex<HashMap<u32, Guest>>,
    /// A job has ended.
    job_ended: Notify,
    /// A connection that held a lease has ended.
    lease_ended: Notify,
    /// A lease was given.
    lease_given: Notify,
}

/// A place among the connections of its user.
struct Seat {
    context: Arc<Context>,
    uid: u32,
    room: Arc<Semaphore>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut guests = self.context.guests();
        if let Some(guest) = guests.get_mut(&self.uid) {
            guest.connections -= 1;
            if guest.connections == 0 {
                guests.remove(&self.uid);
            }
        }
    }
}

impl Context {
    /// What connections to these jobs share.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>, home: Home, admission: Admission) -> Arc<Self> {
        Arc::new(Self {
            jobs,
            home,
            admission,
            guests: Mutex::default(),
            job_ended: Notify::new(),
            lease_ended: Notify::new(),
            lease_given: Notify::new(),
        })
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<u32, Guest>> {
        // Every change is whole before anything can panic.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place; `None` when the user has no more.
    fn seat(self: &Arc<Self>, uid: u32) -> Option<Seat> {
        let mut guests = self.guests();
        let guest = guests.entry(uid).or_insert_with(|| Guest {
            connections: 0,
            room: Arc::new(Semaphore::new(LONG_REQUESTS)),
        });
        if guest.connections >= self.jobs.config().per_uid.connections {
            return None;
        }
        guest.connections += 1;
        Some(Seat {
            context: Arc::clone(self),
            uid,
            room: Arc::clone(&guest.room),
        })
    }

    /// Whether a private daemon has nothing more to do.
    async fn private_end(&self) {
        if !matches!(self.admission, Admission::Private { .. }) {
            std::future::pending::<()>().await;
        }
        if timeout(LEASE_PATIENCE, self.lease_given.notified())
            .await
            .is_err()
        {
            tracing::warn!("nobody started a job");
            return;
        }
        self.lease_ended.notified().await;
    }

    /// Between jobs: detaches probes that nobody has used for a while, and tidies the store.
    async fn keep_house(&self) {
        loop {
            self.job_ended.notified().await;
            let jobs = Arc::clone(&self.jobs);
            // A panic in it is in the log.
            let _done = spawn_blocking(move || jobs.prune()).await;
            sleep(self.jobs.config().linger()).await;
            if self.jobs.idle() {
                let jobs = Arc::clone(&self.jobs);
                let _done = spawn_blocking(move || jobs.rest()).await;
            }
        }
    }
}

/// Serves until `stop` is there; then every job is killed, sealed as lost, and its client told.
pub async fn run(listener: UnixListener, context: Arc<Context>, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let watchdog = async {
        match notify::watchdog_interval() {
            Some(interval) => loop {
                notify::alive();
                sleep(interval).await;
            },
            None => std::future::pending::<()>().await,
        }
    };
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let context = Arc::clone(&context);
                    let stopped = stopped.clone();
                    connections.spawn(async move { serve(stream, &context, stopped).await });
                }
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = stop => {}
        () = context.private_end() => {}
        () = context.keep_house() => {}
        () = watchdog => {}
        () = accept => {}
    }
    drop(listener);
    context.jobs.stop_taking();
    notify::stopping();
    // Nobody listens any more when there is no connection.
    let _nobody = stopping.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(STOP_PATIENCE, all).await.is_err() {
        tracing::error!("connections did not end in time");
        connections.abort_all();
    }
}

/// Serves one connection to its end.
async fn serve(stream: UnixStream, context: &Arc<Context>, stopped: watch::Receiver<bool>) {
    let refusal = match Peer::of(stream.as_fd(), &context.home) {
        Err(error) => error.to_string(),
        Ok(peer) if !context.admission.admits(&peer) => {
            let group = &context.jobs.config().group;
            format!(
                "uid {} may not use this capgated: only root and members of the group {group} may",
                peer.uid
            )
        }
        Ok(peer) => match context.seat(peer.uid) {
            None => format!(
                "uid {} has {} connections open, as many as per_uid.connections allows",
                peer.uid,
                context.jobs.config().per_uid.connections
            ),
            Some(seat) => {
                let peer = Arc::new(peer);
                match Connection::new(stream, peer.pid, Arc::clone(&seat.room)) {
                    Ok(connection) => {
                        let guest = Served {
                            context: Arc::clone(context),
                            connection,
                            peer,
                            lease: None,
                            stopped,
                            _seat: seat,
                        };
                        guest.serve().await;
                    }
                    Err(error) => tracing::error!(%error, "cannot serve a connection"),
                }
                return;
            }
        },
    };
    tracing::info!(%refusal, "connection refused");
    let message = Response::Error { message: refusal };
    if let Ok(line) = protocol::encode(&message, protocol::MAX_RESPONSE) {
        // It is short: what the socket does not take at once is not worth waiting for.
        let _unread = stream.try_write(&line);
    }
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
struct Served {
    context: Arc<Context>,
    connection: Connection,
    peer: Arc<Peer>,
    lease: Option<Lease>,
    stopped: watch::Receiver<bool>,
    _seat: Seat,
}

impl Served {
    async fn serve(mut self) {
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
            if let Err(sentence) = self.check_place() {
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
            SILENCE
        };
        tokio::select! {
            line = timeout(silence, self.connection.line()) => line.unwrap_or(Ok(None)),
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
        if let Err(sentence) = self.check_place() {
            self.refuse(sentence).await?;
            return Ok(false);
        }
        self.connection
            .send(Response::Hello {
                version: greeting.version,
                program: env!("CARGO_PKG_VERSION").to_owned(),
            })
            .await?;
        Ok(true)
    }

    /// Nothing that runs inside a job is served.
    fn check_place(&self) -> Result<(), String> {
        match self.peer.cgroup() {
            Ok(path) if self.context.jobs.hierarchy().inside_job(&path) => Err(format!(
                "process {} runs inside a job, and capgated serves nothing that does",
                self.peer.pid
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
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
            } => return self.tail(&job, &kinds, backlog).await,
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
        let peer = Arc::clone(&self.peer);
        // A lease that comes too late is dropped by the thread, and so its job is.
        let started = timeout(
            START_PATIENCE,
            blocking(move || jobs.start(slot, &peer, start, descriptors)),
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
            Ok(lease) => {
                let job = lease.job();
                let response = Response::Started {
                    job: job.id.to_string(),
                    token: job.token().to_owned(),
                    notes: Vec::new(),
                };
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
        job: &str,
        kinds: &[String],
        backlog: bool,
    ) -> Result<Next, ConnectionError> {
        if let Some(odd) = kinds
            .iter()
            .find(|kind| !KIND_NAMES[1..].contains(&kind.as_str()))
        {
            let odd: String = odd.chars().take(64).collect();
            self.refuse(format!(
                "there are no events of kind {odd}: the kinds are {}",
                KIND_NAMES[1..].join(", ")
            ))
            .await?;
            return Ok(Next::Go);
        }
        let job = match self.context.jobs.follow(&self.peer, job) {
            Ok(Followed::Running(job)) => job,
            Ok(Followed::Over(verdict)) => {
                self.connection.send(Response::End { verdict }).await?;
                return Ok(Next::Go);
            }
            Err(error) => {
                self.refuse(error.to_string()).await?;
                return Ok(Next::Go);
            }
        };
        let subscription = {
            let job = Arc::clone(&job);
            spawn_blocking(move || job.follow(backlog))
                .await
                .map_err(std::io::Error::other)?
        };
        let wanted = |kind: &str| kinds.is_empty() || kinds.iter().any(|wanted| wanted == kind);
        let mut batch = Vec::new();
        let missed = subscription.missed();
        if missed > 0 {
            push(&mut batch, &Response::Lagged { missed })?;
        }
        for event in subscription.backlog {
            if wanted(&event.kind) {
                push(&mut batch, &Response::Event(Box::new(event)))?;
            }
            if batch.len() >= BATCH {
                self.connection.write(&batch).await?;
                batch.clear();
            }
        }
        let Some(mut live) = subscription.live else {
            let verdict = job.verdict();
            push(&mut batch, &Response::End { verdict })?;
            self.connection.write(&batch).await?;
            return Ok(Next::Go);
        };
        loop {
            // Nothing is written while more can be had for nothing.
            let received = match live.try_recv() {
                Ok(event) => Ok(event),
                Err(tokio::sync::broadcast::error::TryRecvError::Empty) => {
                    if !batch.is_empty() {
                        self.connection.write(&batch).await?;
                        batch.clear();
                    }
                    tokio::select! {
                        received = live.recv() => received,
                        closed = self.connection.closed() => return closed.map(|()| Next::End),
                        _ = self.stopped.wait_for(|stopped| *stopped) => return Ok(Next::End),
                    }
                }
                Err(tokio::sync::broadcast::error::TryRecvError::Closed) => Err(RecvError::Closed),
                Err(tokio::sync::broadcast::error::TryRecvError::Lagged(missed)) => {
                    Err(RecvError::Lagged(missed))
                }
            };
            match received {
                Ok(event) if wanted(&event.kind) => {
                    push(&mut batch, &Response::Event(Box::new((*event).clone())))?;
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => push(&mut batch, &Response::Lagged { missed })?,
                Err(RecvError::Closed) => {
                    let verdict = job.verdict();
                    push(&mut batch, &Response::End { verdict })?;
                    self.connection.write(&batch).await?;
                    return Ok(Next::Go);
                }
            }
            if batch.len() >= BATCH {
                self.connection.write(&batch).await?;
                batch.clear();
            }
        }
    }
}

/// Adds an answer to what is sent next.
fn push(batch: &mut Vec<u8>, response: &Response) -> Result<(), ConnectionError> {
    batch.extend(protocol::encode(response, protocol::MAX_RESPONSE)?);
    Ok(())
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
