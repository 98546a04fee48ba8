//! Network namespaces: what there is in the one that a job begins in.

use std::{
    fs::File,
    io,
    net::IpAddr,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    thread,
};

use nix::{
    ifaddrs::getifaddrs,
    sched::{CloneFlags, setns},
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrLike, SockaddrStorage, socket},
};

/// The network namespace of a process; `None` when it is the daemon's own.
///
/// # Errors
/// When it cannot be told.
pub fn open(pid: i32) -> io::Result<Option<File>> {
    let there = File::open(format!("/proc/{pid}/ns/net"))?;
    let own = std::fs::metadata("/proc/self/ns/net")?;
    Ok((there.metadata()?.ino() != own.ino()).then_some(there))
}

/// Takes this thread into a namespace, for good.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(there: Option<File>) -> io::Result<()> {
    if let Some(there) = there {
        setns(there, CloneFlags::CLONE_NEWNET)?;
    }
    Ok(())
}

/// Does something in the network namespace of a process, in a thread of its own when that is not the daemon's.
///
/// # Errors
/// When the namespace cannot be entered, or the work fails.
pub fn within<T: Send>(pid: i32, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    within_that(open(pid)?, work)
}

/// Does something in a network namespace, in a thread of its own; `None` is the daemon's.
///
/// # Errors
/// When the namespace cannot be entered, or the work fails.
pub fn within_that<T: Send>(
    there: Option<File>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(there) = there else {
        return work();
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, || {
                enter(Some(there))?;
                work()
            })?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread in it panicked")))
    })
}

/// Addresses of this thread's network namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    Ok(getifaddrs()?
        .filter_map(|interface| ip_of(&interface.address?))
        .collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    match address.family()? {
        AddressFamily::Inet => Some(IpAddr::V4(address.as_sockaddr_in()?.ip())),
        AddressFamily::Inet6 => Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())),
        _ => None,
    }
}

/// Cookie of the network namespace that this thread is in.
///
/// # Errors
/// When the kernel has none, or refuses.
pub fn cookie() -> io::Result<u64> {
    let family = AddressFamily::Unix;
    let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    cookie_of(socket.as_fd())
}

/// Cookie of the network namespace that a socket is in. An accepted unix socket is in that of who connected, since its `connect`
/// makes it (unix_stream_connect, net/unix/af_unix.c).
///
/// # Errors
/// When the kernel has none, or refuses.
pub fn cookie_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// Not in the `libc` crate (include/uapi/asm-generic/socket.h, the same on x86-64 and arm64).
    const SO_NETNS_COOKIE: libc::c_int = 71;

    let mut cookie = 0u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: both pointers are to live locals, `len` is the size of the first; nix has no such option.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if answer == 0 {
        Ok(cookie)
    } else {
        Err(io::Error::last_os_error())
    }
}
