//! Who is on the other end of a connection, by what the kernel says of it: credentials at connect time, a
//! pidfd, namespaces, cgroup. A process id is used only while its pidfd proves that it is still the same process.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::PathBuf,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{getsockopt, sockopt},
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{netns, proc};

/// Most supplementary groups that a process can have (`NGROUPS_MAX`, limits.h).
const MOST_GROUPS: usize = 65_536;

/// A namespace, as device and inode of its `/proc/PID/ns` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NsId {
    dev: u64,
    ino: u64,
}

/// The namespaces that decide whether a uid, a pid and a path mean to a process what they mean to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces {
    user: NsId,
    pid: NsId,
    mnt: NsId,
}

impl Namespaces {
    /// The namespaces of a process (`/proc/PID/ns`).
    ///
    /// # Errors
    /// When it has ended, or the daemon may not look.
    pub fn of(process: &str) -> io::Result<Self> {
        let id = |kind: &str| {
            let meta = fs::metadata(format!("/proc/{process}/ns/{kind}"))?;
            io::Result::Ok(NsId {
                dev: meta.dev(),
                ino: meta.ino(),
            })
        };
        Ok(Self {
            user: id("user")?,
            pid: id("pid")?,
            mnt: id("mnt")?,
        })
    }
}

/// Which processes count as this host's own: those in the daemon's user, pid and mount namespace.
#[derive(Clone, Copy, Debug)]
pub struct Home(Namespaces);

impl Home {
    /// Looks at the daemon's own namespaces.
    ///
    /// # Errors
    /// When `/proc` is not what it should be.
    pub fn look() -> io::Result<Self> {
        Namespaces::of("self").map(Self)
    }

    /// Whether a process in these namespaces is one of the host's own: its uid 0 is the host's root.
    #[must_use]
    pub fn is_home(&self, other: &Namespaces) -> bool {
        *other == self.0
    }
}

/// Open descriptors of the namespaces of one process: while they are held, no other namespace gets their inode numbers.
#[derive(Debug)]
pub struct NamespacePins {
    _held: [File; 3],
}

/// The process that made a connection.
#[derive(Debug)]
pub struct Peer {
    /// Process id in the daemon's pid namespace.
    pub pid: i32,
    /// Effective uid when it connected.
    pub uid: u32,
    /// Effective and supplementary gids when it connected.
    pub gids: Vec<u32>,
    /// When the process began, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its namespaces when the connection was accepted.
    pub namespaces: Namespaces,
    /// Cookie of the network namespace that it was in when it connected; `None` where the kernel has none.
    pub netns: Option<u64>,
    /// It is one of the host's own processes, see [`Home`].
    pub home: bool,
    /// When the connection was accepted, in clock ticks since boot.
    pub accepted_ticks: u64,
    pidfd: OwnedFd,
}

/// Why a peer cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The kernel does not tell who it is.
    #[error("cannot tell who the peer is ({what}): {cause}")]
    Unknown {
        /// Which look failed.
        what: &'static str,
        /// The system's answer.
        cause: io::Error,
    },
    /// It is in a pid namespace that the daemon cannot see into.
    #[error("the peer's process cannot be seen from the daemon's pid namespace")]
    OutOfSight,
    /// The process that connected is gone.
    #[error("the process that made this connection has ended")]
    Ended,
    /// The id belongs to a process that is younger than the connection.
    #[error("the process that made this connection is not the one that now has its id")]
    Replaced,
}

impl Peer {
    /// Looks at the other end of a connection that has just been accepted.
    ///
    /// # Errors
    /// When the process has ended or cannot be seen.
    pub fn of(socket: BorrowedFd<'_>, home: &Home) -> Result<Self, PeerError> {
        let accepted_ticks = proc::now_ticks();
        let cred =
            getsockopt(&socket, sockopt::PeerCredentials).map_err(|errno| PeerError::Unknown {
                what: "SO_PEERCRED",
                cause: errno.into(),
            })?;
        if cred.pid() <= 0 {
            return Err(PeerError::OutOfSight);
        }
        let pidfd = match getsockopt(&socket, sockopt::PeerPidfd) {
            Ok(pidfd) => pidfd,
            // Kernels before 6.5 have no such option. The start time below then narrows what a re-used id could be.
            Err(nix::errno::Errno::ENOPROTOOPT) => open_pidfd(cred.pid())?,
            Err(nix::errno::Errno::ESRCH | nix::errno::Errno::ENODATA) => {
                return Err(PeerError::Ended);
            }
            Err(errno) => {
                return Err(PeerError::Unknown {
                    what: "SO_PEERPIDFD",
                    cause: errno.into(),
                });
            }
        };
        let mut gids = peer_groups(socket).map_err(|cause| PeerError::Unknown {
            what: "SO_PEERGROUPS",
            cause,
        })?;
        gids.push(cred.gid());

        let process = cred.pid().to_string();
        let look = |what| {
            move |cause: io::Error| match cause.raw_os_error() {
                Some(libc::ENOENT | libc::ESRCH) => PeerError::Ended,
                _ => PeerError::Unknown { what, cause },
            }
        };
        let named = proc::pid_of_pidfd(pidfd.as_raw_fd()).map_err(look("its pidfd"))?;
        if named != cred.pid() {
            return Err(PeerError::Ended);
        }
        let start_ticks = proc::start_ticks(cred.pid()).map_err(look("its start time"))?;
        let namespaces = Namespaces::of(&process).map_err(look("its namespaces"))?;
        let peer = Self {
            pid: cred.pid(),
            uid: cred.uid(),
            gids,
            start_ticks,
            netns: netns::cookie_of(socket).ok(),
            home: home.is_home(&namespaces),
            namespaces,
            accepted_ticks,
            pidfd,
        };
        // What was read of /proc is the peer's only when it is alive now.
        peer.check_alive()?;
        if start_ticks > accepted_ticks {
            return Err(PeerError::Replaced);
        }
        Ok(peer)
    }

    /// Whether the process still runs.
    #[must_use]
    pub fn alive(&self) -> bool {
        alive(self.pidfd.as_fd())
    }

    /// A pidfd of its own for somebody who waits for the end of the process.
    ///
    /// # Errors
    /// When there is no descriptor to be had.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// [`Peer::alive`] as an error.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn check_alive(&self) -> Result<(), PeerError> {
        if self.alive() {
            Ok(())
        } else {
            Err(PeerError::Ended)
        }
    }

    /// The peer's cgroup in the v2 hierarchy, at this moment.
    ///
    /// # Errors
    /// When it has ended, or its cgroup cannot be told.
    pub fn cgroup(&self) -> Result<PathBuf, PeerError> {
        let path = proc::cgroup(self.pid).map_err(|cause| PeerError::Unknown {
            what: "its cgroup",
            cause,
        });
        self.check_alive()?;
        path
    }

    /// Real, effective, saved and file system uid, at this moment.
    ///
    /// # Errors
    /// When it has ended.
    pub fn uids(&self) -> Result<[u32; 4], PeerError> {
        let uids = proc::uids(self.pid).map_err(|cause| PeerError::Unknown {
            what: "its uids",
            cause,
        });
        self.check_alive()?;
        uids
    }

    /// Keeps the peer's namespaces from being replaced by others with the same numbers.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pin_namespaces(&self) -> Result<NamespacePins, PeerError> {
        let open = |kind: &str| {
            File::open(format!("/proc/{}/ns/{kind}", self.pid)).map_err(|cause| {
                PeerError::Unknown {
                    what: "its namespaces",
                    cause,
                }
            })
        };
        let pins = NamespacePins {
            _held: [open("user")?, open("pid")?, open("mnt")?],
        };
        self.check_alive()?;
        Ok(pins)
    }
}

/// Whether the process behind a pidfd still runs: such a descriptor becomes readable when it ends.
#[must_use]
pub fn alive(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(0))
}

/// A pidfd by process id.
fn open_pidfd(pid: i32) -> Result<OwnedFd, PeerError> {
    Pid::from_raw(pid)
        .ok_or(PeerError::OutOfSight)
        .and_then(|pid| {
            pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
                rustix::io::Errno::SRCH => PeerError::Ended,
                errno => PeerError::Unknown {
                    what: "pidfd_open",
                    cause: errno.into(),
                },
            })
        })
}

/// Supplementary groups of the peer when it connected (`SO_PEERGROUPS`, unix(7)).
fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let size = std::mem::size_of_val(groups.as_slice());
        let mut len = libc::socklen_t::try_from(size).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `len` bytes into `groups`, whose size that is, and updates `len`. Neither
        // nix nor rustix wraps this option.
        let ret = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = len as usize / size_of::<libc::gid_t>();
        if ret == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // ERANGE: `len` now holds the size that is needed.
        if error.raw_os_error() != Some(libc::ERANGE)
            || count <= groups.len()
            || count > MOST_GROUPS
        {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn this_process_is_a_peer_of_its_own() -> anyhow::Result<()> {
        let (one, _other) = UnixStream::pair()?;
        let peer = Peer::of(one.as_fd(), &Home::look()?)?;
        assert_eq!(peer.pid, i32::try_from(std::process::id())?);
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
        assert!(peer.home && peer.alive());
        assert_eq!(peer.uids()?, [peer.uid; 4]);
        peer.pin_namespaces()?;
        Ok(())
    }

    #[test]
    fn a_pidfd_by_id_tells_when_its_process_ends() -> anyhow::Result<()> {
        let mut child = std::process::Command::new("sleep").arg("60").spawn()?;
        let pid = i32::try_from(child.id())?;
        let pidfd = open_pidfd(pid)?;
        assert_eq!(proc::pid_of_pidfd(pidfd.as_raw_fd())?, pid);
        assert!(alive(pidfd.as_fd()));
        child.kill()?;
        child.wait()?;
        assert!(!alive(pidfd.as_fd()));
        assert!(matches!(open_pidfd(pid), Err(PeerError::Ended)));
        Ok(())
    }
}
