//! Following a job: what was, what comes, the end. Sends as fast as the reader reads, and tells it what it missed.

use std::sync::Arc;

use capgate_common::{
    event::KIND_NAMES,
    protocol::{self, MAX_RESPONSE, Response, StreamEvent},
};
use tokio::{
    sync::{
        broadcast::error::{RecvError, TryRecvError},
        watch,
    },
    task::spawn_blocking,
};

use crate::{
    connection::{Connection, ConnectionError},
    job::Job,
    stream::{Live, Subscription},
};

/// Bytes of events that are sent together.
const BATCH: usize = 64 << 10;

/// Which kinds of events a reader wants; all when it names none.
pub struct Kinds(Vec<String>);

impl Kinds {
    /// The kinds of these names.
    ///
    /// # Errors
    /// A sentence, when there is no such kind.
    pub fn new(names: Vec<String>) -> Result<Self, String> {
        let known = &KIND_NAMES[1..];
        match names.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Self(names)),
            Some(odd) => {
                let odd: String = odd.chars().take(64).collect();
                let known = known.join(", ");
                Err(format!(
                    "there are no events of kind {odd}: the kinds are {known}"
                ))
            }
        }
    }

    fn hold(&self, kind: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|name| name == kind)
    }
}

/// How following a job came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The job ended.
    Job,
    /// The reader closed, or the daemon stops.
    Reader,
}

/// One reader.
struct Tail<'a> {
    connection: &'a mut Connection,
    stopped: watch::Receiver<bool>,
    kinds: Kinds,
    /// Lines that are not sent yet.
    batch: Vec<u8>,
}

/// Follows a job to its end, or to the reader's.
///
/// # Errors
/// When the connection breaks.
pub async fn follow(
    connection: &mut Connection,
    stopped: watch::Receiver<bool>,
    job: &Arc<Job>,
    kinds: Kinds,
    backlog: bool,
) -> Result<Followed, ConnectionError> {
    let mut tail = Tail {
        connection,
        stopped,
        kinds,
        batch: Vec::new(),
    };
    let subscription = {
        let job = Arc::clone(job);
        // Makes text of the backlog.
        spawn_blocking(move || job.follow(backlog))
            .await
            .map_err(std::io::Error::other)?
    };
    let Some(live) = tail.catch_up(subscription).await? else {
        return tail.end(job).await;
    };
    tail.live(live, job).await
}

impl Tail<'_> {
    /// Sends what was.
    async fn catch_up(
        &mut self,
        subscription: Subscription,
    ) -> Result<Option<Live>, ConnectionError> {
        let missed = subscription.missed();
        if missed > 0 {
            self.push(&Response::Lagged { missed })?;
        }
        for event in subscription.backlog {
            self.event(&event)?;
        }
        Ok(subscription.live)
    }

    /// Sends what comes.
    async fn live(&mut self, mut live: Live, job: &Job) -> Result<Followed, ConnectionError> {
        loop {
            // Nothing is written while more can be had without waiting, up to a batch.
            let received = match live.try_recv() {
                Ok(event) => Ok(event),
                Err(TryRecvError::Closed) => Err(RecvError::Closed),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty) => {
                    if !self.flush().await? {
                        return Ok(Followed::Reader);
                    }
                    tokio::select! {
                        received = live.recv() => received,
                        closed = self.connection.closed() => return closed.map(|()| Followed::Reader),
                        _ = self.stopped.wait_for(|stopped| *stopped) => return Ok(Followed::Reader),
                    }
                }
            };
            match received {
                Ok(event) => self.event(&event)?,
                Err(RecvError::Lagged(missed)) => self.push(&Response::Lagged { missed })?,
                Err(RecvError::Closed) => return self.end(job).await,
            }
            if self.batch.len() >= BATCH && !self.flush().await? {
                return Ok(Followed::Reader);
            }
        }
    }

    async fn end(&mut self, job: &Job) -> Result<Followed, ConnectionError> {
        let verdict = job.verdict();
        self.push(&Response::End { verdict })?;
        Ok(if self.flush().await? {
            Followed::Job
        } else {
            Followed::Reader
        })
    }

    fn event(&mut self, event: &StreamEvent) -> Result<(), ConnectionError> {
        if self.kinds.hold(&event.kind) {
            self.push(&Response::Event(Box::new(event.clone())))?;
        }
        Ok(())
    }

    fn push(&mut self, response: &Response) -> Result<(), ConnectionError> {
        self.batch.extend(protocol::encode(response, MAX_RESPONSE)?);
        Ok(())
    }

    /// Sends what has gathered, however long the reader takes: it may have stopped its terminal. False when the daemon stops.
    async fn flush(&mut self) -> Result<bool, ConnectionError> {
        let batch = std::mem::take(&mut self.batch);
        tokio::select! {
            written = self.connection.write_unhurried(&batch) => written.map(|()| true),
            _ = self.stopped.wait_for(|stopped| *stopped) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_name_and_none_means_all() {
        let kinds = |names: &[&str]| Kinds::new(names.iter().map(ToString::to_string).collect());
        assert!(kinds(&[]).is_ok_and(|all| all.hold("file") && all.hold("exec")));
        assert!(kinds(&["exec"]).is_ok_and(|one| !one.hold("file") && one.hold("exec")));
        assert!(kinds(&["exec", "none"]).is_err_and(|odd| odd.contains("kind none")));
    }
}
