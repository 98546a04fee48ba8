//! One connection: lines in, lines out, descriptors with them. Bounded in bytes and in time, and deaf to anybody but the process
//! that made it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use capgate_common::protocol::{self, FrameError, MAX_REQUEST, MAX_RESPONSE, Response};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::message::receive;

/// Descriptors that a request may bring.
const MOST_DESCRIPTORS: usize = 2;
/// A request that is longer needs a share of its user's room for long ones.
const SHORT_REQUEST: usize = 64 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;
/// How long the rest of a line may take once it has begun.
const LINE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a reader may leave an answer unread.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// How much of an answer has to be read within that time.
const WRITE_CHUNK: usize = 1 << 20;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Reading or writing failed.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// A line that is no message, or too long.
    #[error("the request is {0}")]
    Frame(#[from] FrameError),
    /// It ended within a line.
    #[error("the connection ended within a request")]
    Cut,
    /// Another process writes on it.
    #[error("process {0} speaks on a connection that another process made")]
    Impostor(i32),
    /// More descriptors than any request brings.
    #[error("more than {MOST_DESCRIPTORS} descriptors came")]
    Descriptors,
    /// Too slow.
    #[error("the request took more than {} seconds", LINE_PATIENCE.as_secs())]
    Slow,
    /// Nobody reads.
    #[error("the client left an answer unread for {} seconds", WRITE_PATIENCE.as_secs())]
    Unread,
}

/// A connection to one client.
pub struct Connection {
    stream: UnixStream,
    /// Process id of the peer, which alone may speak.
    pid: i32,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no newline.
    scanned: usize,
    descriptors: Vec<OwnedFd>,
    /// The user's room for long requests.
    room: Arc<Semaphore>,
    /// The share of it that this connection holds.
    share: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// A connection to the process `pid`, whose user has `room` for long requests.
    ///
    /// # Errors
    /// When the kernel does not tell who writes.
    pub fn new(stream: UnixStream, pid: i32, room: Arc<Semaphore>) -> io::Result<Self> {
        setsockopt(&stream, sockopt::PassCred, &true)?;
        Ok(Self {
            stream,
            pid,
            buffer: Vec::new(),
            scanned: 0,
            descriptors: Vec::new(),
            room,
            share: None,
        })
    }

    /// The next line, without its newline; `None` when the client has closed. Nothing is lost when this is not awaited to its end.
    ///
    /// # Errors
    /// See [`ConnectionError`].
    pub async fn line(&mut self) -> Result<Option<Vec<u8>>, ConnectionError> {
        // The wait for the first byte has no limit here: a lease is silent for hours.
        if self.buffer.is_empty() && self.fill().await? == 0 {
            return Ok(None);
        }
        timeout(LINE_PATIENCE, self.rest_of_line())
            .await
            .map_err(|_| ConnectionError::Slow)?
            .map(Some)
    }

    async fn rest_of_line(&mut self) -> Result<Vec<u8>, ConnectionError> {
        loop {
            let fresh = &self.buffer[self.scanned..];
            if let Some(at) = fresh.iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.scanned = 0;
                self.share = None;
                return Ok(line);
            }
            self.scanned = self.buffer.len();
            if self.buffer.len() >= MAX_REQUEST {
                return Err(FrameError::TooLong(MAX_REQUEST).into());
            }
            if self.buffer.len() > SHORT_REQUEST && self.share.is_none() {
                let share = Arc::clone(&self.room).acquire_owned().await;
                self.share = Some(share.map_err(io::Error::other)?);
            }
            if self.fill().await? == 0 {
                return Err(ConnectionError::Cut);
            }
        }
    }

    /// The descriptors that have come so far.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Waits until the client closes. What it says meanwhile is kept, up to one chunk; then it is not listened to.
    ///
    /// # Errors
    /// See [`ConnectionError`].
    pub async fn closed(&mut self) -> Result<(), ConnectionError> {
        while self.buffer.len() < CHUNK {
            if self.fill().await? == 0 {
                return Ok(());
            }
        }
        std::future::pending().await
    }

    /// Reads what is there, waiting for at least one byte; 0 at the end.
    async fn fill(&mut self) -> Result<usize, ConnectionError> {
        let Self {
            stream,
            buffer,
            descriptors,
            pid,
            ..
        } = self;
        let received = stream
            .async_io(Interest::READABLE, || {
                let mut chunk = [0; CHUNK];
                let mut received = receive(stream.as_fd(), &mut chunk)?;
                // Kept at once: what was received must not depend on whether this is awaited to its end.
                buffer.extend_from_slice(&chunk[..received.bytes]);
                descriptors.append(&mut received.descriptors);
                Ok(received)
            })
            .await?;
        if received.bytes > 0 && received.sender != *pid {
            return Err(ConnectionError::Impostor(received.sender));
        }
        if received.cut || self.descriptors.len() > MOST_DESCRIPTORS {
            return Err(ConnectionError::Descriptors);
        }
        Ok(received.bytes)
    }

    /// Sends one answer.
    ///
    /// # Errors
    /// When it is too long, or the client does not read it.
    pub async fn send(&mut self, response: Response) -> Result<(), ConnectionError> {
        let bytes = if matches!(response, Response::Sealed(_)) {
            // May be many megabytes.
            tokio::task::spawn_blocking(move || protocol::encode(&response, MAX_RESPONSE))
                .await
                .map_err(io::Error::other)??
        } else {
            protocol::encode(&response, MAX_RESPONSE)?
        };
        self.write(&bytes).await
    }

    /// Sends lines that are encoded already, to a client that may take its time.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn write_unhurried(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        Ok(self.stream.write_all(bytes).await?)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        for chunk in bytes.chunks(WRITE_CHUNK) {
            timeout(WRITE_PATIENCE, self.stream.write_all(chunk))
                .await
                .map_err(|_| ConnectionError::Unread)??;
        }
        Ok(())
    }
}
