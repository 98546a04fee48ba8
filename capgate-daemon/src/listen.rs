//! The socket: one daemon at each path, reachable for those who may use it and nobody else. The process's umask has to be 0
//! for clients to get in.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr, sockopt},
        stat::{Mode, fchmod},
    },
    unistd::{Gid, Group},
};
use rustix::fs::{Mode as OpenMode, OFlags};

use crate::support::parent_of;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An operation failed.
    #[error("cannot {what} {}: {cause}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// A daemon serves there.
    #[error("another capgated serves {}", .0.display())]
    Taken(PathBuf),
    /// Somebody else could put another socket in its place.
    #[error("the directory {} is not root's alone, so that anybody could take the socket's place", .0.display())]
    Directory(PathBuf),
    /// The directory of a private daemon is not its user's alone.
    #[error("the directory {} of the socket must belong to uid {uid}, with mode 0700", path.display())]
    PrivateDirectory {
        /// Which.
        path: PathBuf,
        /// Whose it should be.
        uid: u32,
    },
    /// The file in the socket's place is none.
    #[error("{} is there and is not a socket", .0.display())]
    NotSocket(PathBuf),
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |cause| ListenError::Io { what, path, cause }
}

/// A socket that is listened on. It goes when this is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// Device and inode, to remove nobody else's.
    id: (u64, u64),
    /// Held as long as the daemon serves; `None` for a private one, whose directory is nobody else's.
    _lock: Option<Flock<File>>,
}

impl Socket {
    /// Takes the listener out.
    pub fn listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = |meta: fs::Metadata| (meta.dev(), meta.ino()) == self.id;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // A daemon that starts later replaces it.
            let _stale = fs::remove_file(&self.path);
        }
    }
}

/// The group of that name.
///
/// # Errors
/// When the system cannot tell.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The socket of a service, for root and the members of `gid`.
///
/// # Errors
/// When another daemon serves there, or the place is not fit.
pub fn service(path: &Path, gid: Option<u32>) -> Result<Socket, ListenError> {
    let directory = parent_of(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(io_error("make", directory))?;
    let meta = fs::metadata(directory).map_err(io_error("look at", directory))?;
    let own = nix::unistd::geteuid().as_raw();
    if meta.uid() != own || meta.permissions().mode() & 0o022 != 0 {
        return Err(ListenError::Directory(directory.to_owned()));
    }
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let lock = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(io_error("open", &lock_path))?;
    let lock =
        Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            nix::errno::Errno::EWOULDBLOCK => ListenError::Taken(path.to_owned()),
            errno => io_error("lock", &lock_path)(errno.into()),
        })?;
    remove_stale(path)?;
    let listener = bind(path, path, 0o660)?;
    if let Some(gid) = gid {
        let chown = nix::unistd::fchownat(
            nix::fcntl::AT_FDCWD,
            path,
            None,
            Some(Gid::from_raw(gid)),
            nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        chown.map_err(|errno| io_error("give to the group", path)(errno.into()))?;
    }
    finish(listener, path, Some(lock))
}

/// The socket of a private daemon, in a directory that only `uid` can enter.
///
/// # Errors
/// When the place is not fit.
pub fn private(path: &Path, uid: u32) -> Result<Socket, ListenError> {
    let directory = parent_of(path);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(directory, flags, OpenMode::empty())
        .map_err(|errno| io_error("open", directory)(errno.into()))?;
    let stat =
        rustix::fs::fstat(&handle).map_err(|errno| io_error("look at", directory)(errno.into()))?;
    let Some(name) = path.file_name() else {
        return Err(ListenError::NotSocket(path.to_owned()));
    };
    if stat.st_uid != uid || stat.st_mode & 0o7777 != 0o700 {
        return Err(ListenError::PrivateDirectory {
            path: directory.to_owned(),
            uid,
        });
    }
    // Through the handle: its user could put another directory in its place. The socket is root's and open to all, and only
    // that user comes near it; giving it away would be a change of whatever that user has put under its name by then.
    let inside = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd())).join(name);
    let listener = bind(&inside, path, 0o666)?;
    finish(listener, path, None)
}

/// Removes a socket that a crashed daemon left. The lock is held: nobody serves it.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    use std::os::unix::fs::FileTypeExt;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("look at", path)(error)),
        Ok(meta) if meta.file_type().is_socket() => {
            fs::remove_file(path).map_err(io_error("remove the stale socket", path))
        }
        Ok(_) => Err(ListenError::NotSocket(path.to_owned())),
    }
}

/// Binds, with a mode of which the process's umask takes away: there is no moment in which it is wider.
fn bind(place: &Path, path: &Path, mode: u32) -> Result<UnixListener, ListenError> {
    let made = || {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // The file that bind makes gets the mode of the descriptor (unix_bind_bsd, af_unix.c).
        fchmod(&socket, Mode::from_bits_truncate(mode))?;
        // So that what a client writes before it is accepted has its writer's credentials too: connections inherit it.
        socket::setsockopt(&socket, sockopt::PassCred, &true)?;
        socket::bind(socket.as_raw_fd(), &UnixAddr::new(place)?)?;
        socket::listen(&socket, Backlog::MAXCONN)?;
        nix::Result::Ok(socket)
    };
    made()
        .map(UnixListener::from)
        .map_err(|errno| io_error("listen on", path)(errno.into()))
}

fn finish(
    listener: UnixListener,
    path: &Path,
    lock: Option<Flock<File>>,
) -> Result<Socket, ListenError> {
    let meta = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
    Ok(Socket {
        listener: Some(listener),
        path: path.to_owned(),
        id: (meta.dev(), meta.ino()),
        _lock: lock,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn directory(mode: u32) -> (tempfile::TempDir, PathBuf) {
        nix::sys::stat::umask(Mode::empty());
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        let path = directory.path().join("s.sock");
        (directory, path)
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_stale_socket_replaced() {
        let (_directory, path) = directory(0o755);
        let first = service(&path, None).unwrap();
        assert!(matches!(service(&path, None), Err(ListenError::Taken(_))));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        let _second = service(&path, None).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn nothing_but_a_socket_is_replaced() {
        let (_directory, path) = directory(0o755);
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            service(&path, None),
            Err(ListenError::NotSocket(_))
        ));
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let (_directory, path) = directory(0o777);
        assert!(matches!(
            service(&path, None),
            Err(ListenError::Directory(_))
        ));
        let uid = nix::unistd::geteuid().as_raw();
        assert!(matches!(
            private(&path, uid),
            Err(ListenError::PrivateDirectory { .. })
        ));
    }

    #[test]
    fn a_private_socket_is_open_in_a_closed_directory() {
        let (_directory, path) = directory(0o700);
        let uid = nix::unistd::geteuid().as_raw();
        assert!(private(&path, uid + 1).is_err());
        let _socket = private(&path, uid).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
    }
}
