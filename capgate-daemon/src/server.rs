//! Accepts connections, checks who is there, serves each in a task of its own, and ends in order.

use std::{
    collections::HashMap,
    future::Future,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capgate_common::protocol::{self, Response};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, Semaphore, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    connection::Connection,
    guest::Guest,
    jobs::Jobs,
    notify,
    peer::{Home, Peer},
};

/// How long connections may take to end when the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a private daemon waits for its client.
const LEASE_PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait when no more connections can be accepted, as when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Long requests of one user that are received at the same time.
const LONG_REQUESTS: usize = 8;

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
struct Share {
    connections: usize,
    room: Arc<Semaphore>,
}

/// What all connections share.
pub struct Context {
    /// The jobs.
    pub(crate) jobs: Arc<Jobs>,
    home: Home,
    admission: Admission,
    shares: Mutex<HashMap<u32, Share>>,
    /// A job has ended.
    pub(crate) job_ended: Notify,
    /// A lease has ended, and what is to be said about that was said.
    pub(crate) lease_ended: Notify,
    /// A lease was given.
    pub(crate) lease_given: Notify,
}

/// A place among the connections of its user.
pub(crate) struct Seat {
    context: Arc<Context>,
    uid: u32,
    room: Arc<Semaphore>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut shares = self.context.shares();
        if let Some(share) = shares.get_mut(&self.uid) {
            share.connections -= 1;
            if share.connections == 0 {
                shares.remove(&self.uid);
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
            shares: Mutex::default(),
            job_ended: Notify::new(),
            lease_ended: Notify::new(),
            lease_given: Notify::new(),
        })
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<u32, Share>> {
        // Every change is whole before anything can panic.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place; `None` when the user has no more.
    fn seat(self: &Arc<Self>, uid: u32) -> Option<Seat> {
        let mut shares = self.shares();
        let share = shares.entry(uid).or_insert_with(|| Share {
            connections: 0,
            room: Arc::new(Semaphore::new(LONG_REQUESTS)),
        });
        if share.connections >= self.jobs.config().per_uid.connections {
            return None;
        }
        share.connections += 1;
        Some(Seat {
            context: Arc::clone(self),
            uid,
            room: Arc::clone(&share.room),
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
                        Guest::new(Arc::clone(context), connection, peer, stopped, seat)
                            .serve()
                            .await;
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
