//! From a job's ring to its session: the only loop over a ring. One thread for each job, so that a job that
//! floods delays nobody but itself.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use aya::maps::{MapData, RingBuf};
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        eventfd::{EfdFlags, EventFd},
    },
};

use crate::{
    decode::{DecodeError, decode},
    event::Event,
};

/// How long records may wait in a ring that is not filling, in milliseconds: the probes wake the reader only
/// when an eighth of the ring is used, everything else is collected at this pace.
const PACE_MS: u16 = 10;
/// The pace of a job that does nothing, reached by doubling.
const SLOWEST_PACE_MS: u16 = 160;

/// What epoll reports.
const STOP: u64 = 0;
const RING: u64 = 1;

/// What takes a job's events, on the job's own thread, in the order of the ring.
pub trait Take: Send + 'static {
    /// One event.
    fn take(&mut self, event: Event);
    /// Bytes that are no event.
    fn reject(&mut self, error: DecodeError);
}

/// Why a ring could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// No thread or descriptor.
    #[error("cannot start reading a job's ring: {0}")]
    Start(#[source] io::Error),
    /// Waiting failed.
    #[error("cannot wait for a job's ring: {0}")]
    Wait(#[source] Errno),
    /// The thread died.
    #[error("the thread that reads a job's ring died")]
    Died,
}

/// What came out of a ring: `received = decoded + rejected`.
#[derive(Debug)]
pub struct Drained<T> {
    /// Who took it.
    pub taker: T,
    /// Records read.
    pub received: u64,
    /// Records that were events.
    pub decoded: u64,
    /// Records that were not.
    pub rejected: u64,
}

/// A ring that is being read.
#[derive(Debug)]
pub struct Drain<T> {
    thread: Option<JoinHandle<Result<Drained<T>, DrainError>>>,
    stop: Arc<EventFd>,
    received: Arc<AtomicU64>,
}

/// Starts to read a ring.
///
/// # Errors
/// When there is no thread or descriptor to be had.
pub fn spawn<T: Take>(ring: RingBuf<MapData>, taker: T) -> Result<Drain<T>, DrainError> {
    let stop = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|e| DrainError::Start(e.into()))?;
    let stop = Arc::new(stop);
    let received = Arc::new(AtomicU64::new(0));
    let thread = std::thread::Builder::new()
        .name("drain".to_owned())
        .spawn({
            let (stop, received) = (Arc::clone(&stop), Arc::clone(&received));
            move || run(ring, taker, &stop, &received)
        })
        .map_err(DrainError::Start)?;
    Ok(Drain {
        thread: Some(thread),
        stop,
        received,
    })
}

impl<T> Drain<T> {
    /// Records read so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Reads until the ring is empty and ends. Call it when nothing is written any more.
    ///
    /// # Errors
    /// When reading failed before.
    pub fn finish(mut self) -> Result<Drained<T>, DrainError> {
        let thread = self.thread.take().ok_or(DrainError::Died)?;
        self.signal();
        thread.join().map_err(|_| DrainError::Died)?
    }

    fn signal(&self) {
        // Fails only when the counter is full, and then the thread is awake already.
        let _: nix::Result<usize> = self.stop.write(1);
    }
}

impl<T> Drop for Drain<T> {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.signal();
        }
    }
}

fn run<T: Take>(
    mut ring: RingBuf<MapData>,
    taker: T,
    stop: &EventFd,
    received: &AtomicU64,
) -> Result<Drained<T>, DrainError> {
    let waiter = Waiter::new(&ring, stop).map_err(DrainError::Wait)?;
    let mut drained = Drained {
        taker,
        received: 0,
        decoded: 0,
        rejected: 0,
    };
    let mut pace = PACE_MS;
    loop {
        // Looked at before the ring, so that everything written before the signal is read after it.
        let stopping = waiter.wait(pace)?;
        let before = drained.received;
        while let Some(bytes) = ring.next() {
            drained.received += 1;
            match decode(&bytes) {
                Ok(event) => {
                    drained.decoded += 1;
                    drained.taker.take(event);
                }
                Err(error) => {
                    drained.rejected += 1;
                    drained.taker.reject(error);
                }
            }
        }
        received.store(drained.received, Ordering::Relaxed);
        if stopping {
            return Ok(drained);
        }
        pace = if drained.received == before {
            (pace * 2).min(SLOWEST_PACE_MS)
        } else {
            PACE_MS
        };
    }
}

/// What ends a wait early.
struct Waiter(Epoll);

impl Waiter {
    fn new(ring: &RingBuf<MapData>, stop: &EventFd) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        // SAFETY: the descriptor belongs to the ring, which outlives the borrow.
        let ring = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        // Edge-triggered: a ring with anything in it counts as readable, but only the probes' wake-up, which
        // comes when an eighth is used, is worth a round before its time.
        epoll.add(
            ring,
            EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, RING),
        )?;
        Ok(Self(epoll))
    }

    /// Waits until the ring wakes the reader, the pace has passed, or the end is asked for; whether it is.
    fn wait(&self, pace: u16) -> Result<bool, DrainError> {
        let mut events = [EpollEvent::empty(); 2];
        match self.0.wait(&mut events, EpollTimeout::from(pace)) {
            Ok(count) => Ok(events.iter().take(count).any(|event| event.data() == STOP)),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(DrainError::Wait(error)),
        }
    }
}
