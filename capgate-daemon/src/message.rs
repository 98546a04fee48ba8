//! Receiving with what comes beside the bytes: descriptors, and who wrote.
//!
//! By hand, since the safe ways do not fit: rustix holds a sender without a process id, which the kernel writes as 0, for
//! impossible, and nix forgets the descriptors of a message of which some were cut off, so that they stay open.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// Bytes for control data: two descriptors and a sender, with their heads, and some more.
const CONTROL: usize = 128;

/// Control data, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

/// What one call received.
#[derive(Debug)]
pub struct Received {
    /// How many bytes; 0 at the end of the connection.
    pub bytes: usize,
    /// Process id of the writer (`SCM_CREDENTIALS`); 0 when the kernel does not say.
    pub sender: i32,
    /// Descriptors that came with them, closed on exec.
    pub descriptors: Vec<OwnedFd>,
    /// There was no room for all descriptors; the rest is closed.
    pub cut: bool,
}

/// Receives what is there, without waiting.
///
/// # Errors
/// `WouldBlock` when nothing is there; else when the connection broke.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([const { MaybeUninit::uninit() }; CONTROL]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message points to `buffer` and `control` with their lengths, which are alive and exclusively borrowed.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received {
        bytes,
        sender: 0,
        descriptors: Vec::new(),
        cut: message.msg_flags & libc::MSG_CTRUNC != 0,
    };
    // SAFETY: the message is as the kernel left it: `msg_controllen` bytes of `control` are control data.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !head.is_null() {
        // SAFETY: `head` is in `control` and whole, as CMSG_FIRSTHDR and CMSG_NXTHDR see to.
        let (level, kind, len) =
            unsafe { ((*head).cmsg_level, (*head).cmsg_type, (*head).cmsg_len) };
        // SAFETY: it takes no pointer.
        let overhead = unsafe { libc::CMSG_LEN(0) } as usize;
        // SAFETY: the data begins behind the head, inside `control`.
        let data = unsafe { libc::CMSG_DATA(head) };
        // A head whose length goes beyond what was received would be the kernel's fault; it must not become ours.
        let end = ptr::from_ref(&control).addr() + CONTROL;
        let len = len
            .saturating_sub(overhead)
            .min(end.saturating_sub(data.addr()));
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for index in 0..len / size_of::<RawFd>() {
                    // SAFETY: the data holds `len` bytes of descriptors, which need not be aligned.
                    let fd = unsafe { data.cast::<RawFd>().add(index).read_unaligned() };
                    // SAFETY: the kernel has just made this descriptor for this process, and nothing else knows of it.
                    received
                        .descriptors
                        .push(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if len >= size_of::<libc::ucred>() => {
                // SAFETY: the data holds a `ucred`, three integers, which need not be aligned.
                received.sender = unsafe { data.cast::<libc::ucred>().read_unaligned() }.pid;
            }
            _ => {}
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        head = unsafe { libc::CMSG_NXTHDR(&raw const message, head) };
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{ErrorKind, IoSlice},
        os::{fd::AsFd, unix::net::UnixStream},
    };

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};

    use super::*;

    fn send(socket: &UnixStream, text: &[u8], count: usize) {
        let files: Vec<File> = (0..count).map(|_| File::open("/").unwrap()).collect();
        let raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[_] = if count == 0 { &[] } else { &rights };
        sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(text)],
            control,
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }

    #[test]
    fn bytes_descriptors_and_their_sender_arrive() {
        let (near, far) = UnixStream::pair().unwrap();
        setsockopt(&near, sockopt::PassCred, &true).unwrap();
        let mut buffer = [0; 64];
        let nothing = receive(near.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);

        send(&far, b"hello", 2);
        let received = receive(near.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..received.bytes], b"hello");
        assert_eq!(u32::try_from(received.sender), Ok(std::process::id()));
        assert_eq!((received.descriptors.len(), received.cut), (2, false));
        assert!(rustix::fs::fstat(&received.descriptors[1]).is_ok());

        send(&far, b"x", 0);
        let received = receive(near.as_fd(), &mut buffer).unwrap();
        assert_eq!((received.bytes, received.descriptors.len()), (1, 0));
        drop(far);
        assert_eq!(receive(near.as_fd(), &mut buffer).unwrap().bytes, 0);
    }

    #[test]
    fn more_descriptors_than_fit_are_closed_and_told() {
        let (near, far) = UnixStream::pair().unwrap();
        setsockopt(&near, sockopt::PassCred, &true).unwrap();
        let mut buffer = [0; 64];
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (mut before, mut after) = (0, 1);
        // Other tests of this process open and close descriptors, too.
        for _ in 0..100 {
            before = open();
            send(&far, b"x", 200);
            let received = receive(near.as_fd(), &mut buffer).unwrap();
            assert!(received.cut && received.descriptors.len() > 2);
            drop(received);
            after = open();
            if before == after {
                break;
            }
        }
        assert_eq!(before, after);
    }

    #[test]
    fn without_being_asked_the_kernel_does_not_say_who_wrote() {
        let (near, far) = UnixStream::pair().unwrap();
        send(&far, b"x", 0);
        let received = receive(near.as_fd(), &mut [0; 8]).unwrap();
        assert_eq!((received.bytes, received.sender), (1, 0));
    }
}
