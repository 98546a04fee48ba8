//! The live stream of one job: events as they come, for whoever reads. Whoever reads too slowly loses events and is told how
//! many; the job never waits for a reader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capgate_common::protocol::StreamEvent;
use tokio::sync::broadcast;

/// Events that a reader may be behind before it loses some.
const LIVE_EVENTS: usize = 1024;

/// The receiving half.
pub type Live = broadcast::Receiver<Arc<StreamEvent>>;

/// The stream of one job.
#[derive(Debug)]
pub struct Stream {
    /// `None` once the job has ended.
    live: Mutex<Option<broadcast::Sender<Arc<StreamEvent>>>>,
}

/// What a reader gets.
#[derive(Debug)]
pub struct Subscription {
    /// The kept events, oldest first; empty when they were not asked for.
    pub backlog: Vec<StreamEvent>,
    /// What comes next, without a gap; `None` when the job has ended.
    pub live: Option<Live>,
}

impl Subscription {
    /// Events before the backlog that are not kept any more.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.backlog
            .first()
            .map_or(0, |event| event.seq.saturating_sub(1))
    }
}

impl Stream {
    /// A stream that nobody reads.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (live, _) = broadcast::channel(LIVE_EVENTS);
        Arc::new(Self {
            live: Mutex::new(Some(live)),
        })
    }

    /// Whether anybody reads: only then events need text.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|live| live.receiver_count() > 0)
    }

    /// Sends an event to those who read.
    pub fn send(&self, event: StreamEvent) {
        if let Some(live) = &*self.lock() {
            // An error says that nobody reads any more.
            let _unread = live.send(Arc::new(event));
        }
    }

    /// Begins to read what comes next.
    #[must_use]
    pub fn subscribe(&self) -> Option<Live> {
        self.lock().as_ref().map(broadcast::Sender::subscribe)
    }

    /// The job has ended: readers get what is on its way, then the end.
    pub fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<broadcast::Sender<Arc<StreamEvent>>>> {
        // Nothing above can leave it half changed.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use broadcast::error::TryRecvError;

    use super::*;

    fn event(seq: u64) -> StreamEvent {
        StreamEvent {
            seq,
            ms: 0,
            kind: "file".to_owned(),
            pid: 1,
            exe: None,
            op: "open".to_owned(),
            subject: "a".to_owned(),
        }
    }

    #[test]
    fn it_is_read_while_somebody_reads() {
        let stream = Stream::new();
        assert!(!stream.is_read());
        let live = stream.subscribe();
        assert!(live.is_some() && stream.is_read());
        drop(live);
        assert!(!stream.is_read());
    }

    #[test]
    fn a_slow_reader_is_told_how_many_events_it_missed_and_then_the_end() {
        let stream = Stream::new();
        let mut live = stream.subscribe().unwrap();
        let last = LIVE_EVENTS as u64 + 7;
        (1..=last).for_each(|seq| stream.send(event(seq)));
        stream.close();
        assert!(matches!(live.try_recv(), Err(TryRecvError::Lagged(7))));
        for expect in 8..=last {
            assert_eq!(live.try_recv().unwrap().seq, expect);
        }
        assert!(matches!(live.try_recv(), Err(TryRecvError::Closed)));
        assert!(stream.subscribe().is_none() && !stream.is_read());
    }

    #[test]
    fn a_backlog_that_does_not_begin_at_the_beginning_says_so() {
        let missed = |seqs: &[u64]| {
            Subscription {
                backlog: seqs.iter().map(|&seq| event(seq)).collect(),
                live: None,
            }
            .missed()
        };
        assert_eq!((missed(&[]), missed(&[1, 2]), missed(&[8, 9])), (0, 0, 7));
    }
}
