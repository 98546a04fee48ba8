//! What the events say of one name that was written, and what that says of the time before the job.
//!
//! Counted is how often a call *made* the name and found nothing there (created flag, mkdir, link, …), how often a call *took*
//! it away (unlink, rename from), and how often a plain rename put something *over* it, which does not say what was there.
//! With what the file system says at the end this tells what was there before the job, whatever the order in which
//! records arrived: `before = after + taken - made`.
//!
//! A rename over a name counts as made or as a replacement when the earlier events tell which. That needs their order. Records
//! of calls that ran at the same time can be in the wrong order. Most often the events of the name do not fit each other then:
//! it is made where it is, or taken where it is not. After that, and after events that are too close, the order of the
//! name's events is not trusted.

use crate::{
    look::End,
    names::{Kind, NameId, Presence},
    seen::{Moment, Op, Seen},
};

/// Records of different threads that are further apart than this arrived in the order in which things happened. A record is
/// written at the end of its call; in between a thread can be preempted, or held by a CPU quota, whose period is a
/// tenth of a second.
const ORDER_NS: u64 = 1_000_000_000;
/// Records of different threads that are closer than this may well be in the wrong order. Short, because a thread pool that works
/// on a name in turns is as close; it then makes no difference but for a name that was made, removed and renamed over.
const CLOSE_NS: u64 = 10_000_000;

/// What was at a name before the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// Something.
    Something,
    /// It cannot be told.
    Unknown,
}

/// What a plain rename found at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing, by the events before.
    Nothing,
    /// Something, by the events before.
    Something,
    /// It cannot be told.
    Unknown,
}

/// What is known about one name that was written.
#[derive(Debug)]
pub struct Touch {
    /// Which name.
    pub name: NameId,
    /// How it came about.
    pub seen: Seen,
    /// A call needed it to be there, and showed no identity.
    pub needed: bool,
    /// It was made by a call that showed no identity: an unknown inode there proves nothing.
    pub anonymous: bool,
    /// Something that may not have been a directory was there at some time.
    pub file: bool,
    /// What was there before the job, if anything.
    pub before: Kind,
    made: u32,
    taken: u32,
    over: [u32; 3],
    /// The order of events proves that it was there before the job.
    certain: bool,
    /// The events do not fit each other.
    disorder: bool,
    /// Events of different threads were too close to tell their order.
    close: bool,
    last_ns: u64,
    last_tid: u32,
}

impl Touch {
    /// A name that nothing was done to yet. It remembers a moment as its first.
    #[must_use]
    pub fn new(name: NameId, op: Op, moment: &Moment) -> Self {
        Self {
            name,
            seen: Seen {
                count: 0,
                ..Seen::first(op, moment)
            },
            needed: false,
            anonymous: false,
            file: false,
            before: Kind::Unknown,
            made: 0,
            taken: 0,
            over: [0; 3],
            certain: false,
            disorder: false,
            close: false,
            last_ns: moment.time_ns,
            last_tid: moment.tid,
        }
    }

    /// A call made it, where the events so far say `now`.
    pub fn make(&mut self, now: Presence, moment: &Moment) {
        // Taken away first and made later: it was there before the job, unless the records may be in the wrong order.
        if self.is_fresh() && self.taken > 0 && self.is_before(moment) {
            self.certain = true;
        }
        self.disorder |= now == Presence::Present;
        self.made = self.made.saturating_add(1);
        self.settle(moment);
    }

    /// A call took it away.
    pub fn take(&mut self, now: Presence, moment: &Moment) {
        self.taken = self.taken.saturating_add(1);
        self.use_it(now, moment);
    }

    /// A call found it there.
    pub fn use_it(&mut self, now: Presence, moment: &Moment) {
        self.disorder |= now == Presence::Absent;
        self.settle(moment);
    }

    /// A plain rename put something over it.
    pub fn put_over(&mut self, found: Found, moment: &Moment) {
        if found == Found::Nothing && self.is_fresh() && self.taken > 0 && self.is_before(moment) {
            self.certain = true;
        }
        let count = &mut self.over[found as usize];
        *count = count.saturating_add(1);
        self.anonymous = true;
        self.settle(moment);
    }

    /// Something else happened to it.
    pub fn settle(&mut self, moment: &Moment) {
        self.close |=
            moment.tid != self.last_tid && moment.time_ns.abs_diff(self.last_ns) < CLOSE_NS;
        self.last_ns = self.last_ns.max(moment.time_ns);
        self.last_tid = moment.tid;
    }

    /// Whether an event is certain to have happened after the last one here.
    #[must_use]
    pub fn is_before(&self, moment: &Moment) -> bool {
        moment.tid == self.last_tid || moment.time_ns > self.last_ns.saturating_add(ORDER_NS)
    }

    /// The last moment here.
    #[must_use]
    pub fn last(&self) -> Moment {
        let Seen { first_ms, by, .. } = self.seen;
        Moment {
            time_ns: self.last_ns,
            ms: first_ms,
            tid: self.last_tid,
            by,
        }
    }

    /// Whether no call put anything at it.
    fn is_fresh(&self) -> bool {
        self.made == 0 && self.over == [0; 3]
    }

    /// Whether a call made it and found nothing there.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.made > 0
    }

    /// Whether a call took it away.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.taken > 0
    }

    /// Whether events of different threads were too close to tell their order.
    #[must_use]
    pub fn is_close(&self) -> bool {
        self.close
    }

    /// Whether several renames over it were that close: which was last cannot be told.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        self.close && self.over.iter().sum::<u32>() > 1
    }

    /// Whether nothing that was counted made it, took it away or needed it.
    #[must_use]
    pub fn is_weightless(&self) -> bool {
        self.is_fresh() && self.taken == 0 && !self.needed
    }

    /// Whether what was there before the job may have been removed, replaced or renamed.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        let [nothing, something, unknown] = self.over;
        self.certain
            || self.needed
            || something + unknown > 0
            || self.taken > self.made.saturating_add(nothing)
    }

    /// Whether the events fit neither each other nor the end: `now` is what they say, `end` what is there.
    #[must_use]
    pub fn is_disordered(&self, now: Presence, end: End) -> bool {
        self.disorder
            || match now {
                Presence::Present => end == End::Nothing,
                Presence::Absent => end != End::Nothing,
                Presence::Unknown => false,
            }
    }

    /// What was there before the job. `foreign` says that an inode was opened there which the job never created.
    #[must_use]
    pub fn before(&self, now: Presence, end: End, foreign: bool) -> Before {
        if self.certain {
            return Before::Something;
        }
        if self.is_fresh() {
            // Only used and taken away, or of no weight at all: then it is there now, or it never was.
            let needed = self.needed || self.taken > 0 || foreign;
            return if needed {
                Before::Something
            } else {
                Before::Unknown
            };
        }
        if foreign && !self.anonymous {
            return Before::Something;
        }
        let after = i64::from(end != End::Nothing);
        let balance = after + i64::from(self.taken) - i64::from(self.made);
        let [nothing, something, unknown] = self.over.map(i64::from);
        let (least, most) = if self.close || self.is_disordered(now, end) {
            (balance - nothing - something - unknown, balance)
        } else {
            (balance - nothing - unknown, balance - nothing)
        };
        if most <= 0 {
            Before::Nothing
        } else if least >= 1 {
            Before::Something
        } else {
            Before::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Before, CLOSE_NS, Found, Touch};
    use crate::{
        look::End,
        names::{NameId, Presence},
        process::ImageId,
        seen::{Moment, Op},
    };

    /// `m` made, `t` taken, `u` used, `n` put over nothing, `s` over something, `?` over what cannot be told; capital letters by
    /// another thread. The presence follows from the letters.
    fn check(events: &str, end: End, expect: Before) {
        let mut now = Presence::Unknown;
        let mut touch = Touch::new(NameId::ROOT, Op::Open, &moment(0, 1));
        for (index, letter) in (1..).zip(events.chars()) {
            let moment = moment(
                index * 2 * CLOSE_NS,
                if letter.is_uppercase() { 2 } else { 1 },
            );
            match letter.to_ascii_lowercase() {
                'm' => touch.make(now, &moment),
                't' => touch.take(now, &moment),
                'u' => touch.use_it(now, &moment),
                'n' => touch.put_over(Found::Nothing, &moment),
                's' => touch.put_over(Found::Something, &moment),
                _ => touch.put_over(Found::Unknown, &moment),
            }
            now = if letter.eq_ignore_ascii_case(&'t') {
                Presence::Absent
            } else {
                Presence::Present
            };
        }
        assert_eq!(touch.before(now, end, false), expect, "{events} {end:?}");
    }

    fn moment(time_ns: u64, tid: u32) -> Moment {
        Moment {
            time_ns,
            ms: 0,
            tid,
            by: ImageId::UNKNOWN,
        }
    }

    #[test]
    fn counts_tell_what_was_there() {
        check("m", End::Other, Before::Nothing);
        check("mt", End::Nothing, Before::Nothing);
        check("mtmt", End::Nothing, Before::Nothing);
        check("t", End::Nothing, Before::Something);
        check("tm", End::Other, Before::Something);
        check("tmt", End::Nothing, Before::Something);
        // Somebody outside took it away.
        check("m", End::Nothing, Before::Nothing);
    }

    #[test]
    fn a_rename_over_a_name_says_little() {
        check("?", End::Other, Before::Unknown);
        check("?t", End::Nothing, Before::Unknown);
        check("?tn", End::Other, Before::Unknown);
        check("mtnt", End::Nothing, Before::Nothing);
        check("mst", End::Nothing, Before::Nothing);
        check("tn", End::Other, Before::Something);
    }

    #[test]
    fn the_order_of_two_threads_is_not_trusted_when_the_events_do_not_fit() {
        check("mTn", End::Other, Before::Nothing);
        // Made where it is, put where it is not, and the end is another one: none of the three is believed.
        check("mmttn", End::Other, Before::Unknown);
        check("ttn", End::Other, Before::Something);
        // Taken first, then put: or put first, over what cannot be told, and then taken.
        check("tN", End::Nothing, Before::Unknown);
        check("tM", End::Nothing, Before::Nothing);
        check("Mm", End::Other, Before::Nothing);
    }
}
