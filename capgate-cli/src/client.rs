//! A connection to the daemon: one line of JSON each way, whole messages or an error that says what to do.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use capgate_common::protocol::{self, FrameError, Request, Response};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{
            self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sockopt,
        },
        time::TimeVal,
    },
};

use crate::shown::shown;

/// How long the daemon may take to accept a connection, take a request, or answer one that needs no work.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);
/// How long the daemon may take to start a job: the probes may have to be attached first.
pub(crate) const START: Duration = Duration::from_secs(60);
/// How long the daemon may take to seal a job: leftover processes get 5 s, then names are looked up, with limits of their own.
pub(crate) const SEAL: Duration = Duration::from_secs(300);

/// What this program calls itself in a `hello`.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// How much is taken from the socket at once.
const CHUNK: usize = 64 << 10;

/// Why the daemon cannot be asked. One sentence each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No daemon was ever there.
    #[error(
        "cannot reach capgated at {0}: there is no such socket; start the service (systemctl start capgated), \
         name its socket with --socket, or run with --local"
    )]
    Absent(String),
    /// A daemon was there.
    #[error(
        "cannot reach capgated at {0}: nothing listens there any more; start the service (systemctl start capgated), \
         or run with --local"
    )]
    Refused(String),
    /// The socket's mode forbids it.
    #[error(
        "cannot reach capgated at {0}: permission denied; only root and members of group capgate may record: \
         ask to be added to the group and log in again, or run with --local"
    )]
    Forbidden(String),
    /// Another failure to connect.
    #[error("cannot reach capgated at {path}: {cause}")]
    Connect {
        /// The socket.
        path: String,
        /// The system's answer.
        cause: Errno,
    },
    /// The daemon hung up.
    #[error(
        "capgated ended the connection while it was asked to {0}; its log says why (journalctl -u capgated)"
    )]
    Closed(&'static str),
    /// The daemon is silent.
    #[error("capgated did not {what} within {} s; it may be stopped or overloaded (capgate status)", .limit.as_secs())]
    Silent {
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        limit: Duration,
    },
    /// The connection failed.
    #[error("cannot talk to capgated to {what}: {cause}")]
    Talk {
        /// What was asked.
        what: &'static str,
        /// The system's answer.
        cause: Errno,
    },
    /// A request that does not fit.
    #[error("cannot ask capgated to {what}: {cause}")]
    Request {
        /// What was asked.
        what: &'static str,
        /// Why not.
        cause: FrameError,
    },
    /// What came is not an answer.
    #[error(
        "cannot understand capgated's answer to {what}: {cause}; install capgate and capgated of the same version"
    )]
    Answer {
        /// What was asked.
        what: &'static str,
        /// Why not.
        cause: FrameError,
    },
    /// An answer to something else.
    #[error(
        "capgated gave an answer that does not fit when it was asked to {0}; install capgate and capgated of the same version"
    )]
    Unexpected(&'static str),
    /// The versions do not fit.
    #[error(
        "capgated speaks version {0} of the protocol and this capgate speaks {oldest} to {newest}; \
         install capgate and capgated of the same version",
        oldest = protocol::OLDEST_VERSION,
        newest = protocol::VERSION
    )]
    Version(u32),
    /// The daemon said no, in its own sentence.
    #[error("{0}")]
    Said(String),
}

/// A connection that has said hello.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    received: Vec<u8>,
    /// How much of `received` is known to hold no newline.
    searched: usize,
    /// The daemon's program version.
    pub(crate) daemon: String,
}

impl Connection {
    /// Connects and says hello.
    ///
    /// # Errors
    /// When no daemon listens, it does not let this user in, or its version does not fit.
    pub(crate) fn open(path: &Path) -> Result<Self, ClientError> {
        let mut connection = Self {
            socket: connect(path)?,
            received: Vec::new(),
            searched: 0,
            daemon: String::new(),
        };
        let hello = Request::Hello {
            version: protocol::VERSION,
            program: PROGRAM.to_owned(),
        };
        match connection.ask("say hello", &hello)? {
            Response::Hello { version, program } => {
                if !(protocol::OLDEST_VERSION..=protocol::VERSION).contains(&version) {
                    return Err(ClientError::Version(version));
                }
                connection.daemon = program;
                Ok(connection)
            }
            _ => Err(ClientError::Unexpected("say hello")),
        }
    }

    /// Sends a request and waits for its answer; an error that the daemon answers is an error here.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn ask(
        &mut self,
        what: &'static str,
        request: &Request,
    ) -> Result<Response, ClientError> {
        self.send(what, request, &[])?;
        self.receive(what, Some(PROMPT))
    }

    /// Sends a request, with descriptors beside its first byte.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn send(
        &mut self,
        what: &'static str,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let line = protocol::encode(request, protocol::MAX_REQUEST)
            .map_err(|cause| ClientError::Request { what, cause })?;
        let descriptors: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let mut control: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let sent = socket::sendmsg::<()>(
                self.socket.as_raw_fd(),
                &[IoSlice::new(rest)],
                control,
                // A daemon that is gone is an error to tell, not a signal.
                MsgFlags::MSG_NOSIGNAL,
                None,
            );
            match sent {
                Ok(count) => {
                    rest = &rest[count..];
                    control = &[];
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => {
                    // A refusal may have been sent before the daemon hung up.
                    return match self.receive(what, Some(PROMPT)) {
                        Err(error) => Err(error),
                        Ok(_) => Err(ClientError::Closed(what)),
                    };
                }
                Err(Errno::EAGAIN) => {
                    return Err(ClientError::Silent {
                        what,
                        limit: PROMPT,
                    });
                }
                Err(cause) => return Err(ClientError::Talk { what, cause }),
            }
        }
        Ok(())
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn receive(
        &mut self,
        what: &'static str,
        limit: Option<Duration>,
    ) -> Result<Response, ClientError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            if let Some(response) = self.received(what)? {
                return Ok(response);
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if let (Some(Duration::ZERO), Some(limit)) = (left, limit) {
                return Err(ClientError::Silent { what, limit });
            }
            let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, poll_timeout(left)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(cause) => return Err(ClientError::Talk { what, cause }),
            }
        }
    }

    /// Takes what has arrived, without waiting: the next message if it is whole.
    ///
    /// # Errors
    /// See [`ClientError`]; a daemon that hung up is [`ClientError::Closed`].
    pub(crate) fn received(&mut self, what: &'static str) -> Result<Option<Response>, ClientError> {
        loop {
            if let Some(line) = self.take_line() {
                return match protocol::decode(&line, protocol::MAX_RESPONSE) {
                    Ok(Response::Error { message }) => Err(ClientError::Said(
                        capgate_common::pathform::neutralise(&message),
                    )),
                    Ok(response) => Ok(Some(response)),
                    Err(cause) => Err(ClientError::Answer { what, cause }),
                };
            }
            if self.received.len() > protocol::MAX_RESPONSE {
                return Err(ClientError::Answer {
                    what,
                    cause: FrameError::TooLong(protocol::MAX_RESPONSE),
                });
            }
            if !self.take_chunk(what)? {
                return Ok(None);
            }
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let found = self.received[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n');
        let Some(offset) = found else {
            self.searched = self.received.len();
            return None;
        };
        let rest = self.received.split_off(self.searched + offset + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.received, rest))
    }

    /// Whether something was there to be taken.
    fn take_chunk(&mut self, what: &'static str) -> Result<bool, ClientError> {
        let held = self.received.len();
        self.received.resize(held + CHUNK, 0);
        let taken = socket::recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut [IoSliceMut::new(&mut self.received[held..])],
            None,
            MsgFlags::MSG_DONTWAIT,
        )
        .map(|message| message.bytes);
        self.received
            .truncate(held + taken.as_ref().copied().unwrap_or(0));
        match taken {
            Ok(0) | Err(Errno::ECONNRESET) => Err(ClientError::Closed(what)),
            Ok(_) | Err(Errno::EINTR) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(cause) => Err(ClientError::Talk { what, cause }),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A poll timeout of at least `left`; for ever without one.
pub(crate) fn poll_timeout(left: Option<Duration>) -> PollTimeout {
    // Rounded up: a timeout of 0 ms for the last fraction of one would spin.
    left.map_or(PollTimeout::NONE, |left| {
        PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
    })
}

fn connect(path: &Path) -> Result<OwnedFd, ClientError> {
    let failed = |cause| ClientError::Connect {
        path: shown(path),
        cause,
    };
    let address = UnixAddr::new(path).map_err(failed)?;
    let socket = socket::socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(failed)?;
    let limit = TimeVal::new(i64::try_from(PROMPT.as_secs()).unwrap_or(i64::MAX), 0);
    // Also bounds connect(2), which waits while the daemon's backlog is full.
    socket::setsockopt(&socket, sockopt::SendTimeout, &limit).map_err(failed)?;
    loop {
        return match socket::connect(socket.as_raw_fd(), &address) {
            Ok(()) => Ok(socket),
            Err(Errno::EINTR) => continue,
            Err(Errno::ENOENT | Errno::ENOTDIR) => Err(ClientError::Absent(shown(path))),
            Err(Errno::ECONNREFUSED) => Err(ClientError::Refused(shown(path))),
            Err(Errno::EACCES | Errno::EPERM) => Err(ClientError::Forbidden(shown(path))),
            Err(Errno::EAGAIN) => Err(ClientError::Silent {
                what: "accept the connection",
                limit: PROMPT,
            }),
            Err(cause) => Err(failed(cause)),
        };
    }
}
