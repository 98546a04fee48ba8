//! How often, when first and by whom something was seen: what evidence says of every entry.

use crate::{
    event::{InetOp, NameOp, SocketOp},
    process::ImageId,
};

macro_rules! ops {
    ($($op:ident = $word:literal),+ $(,)?) => {
        /// What was done. In the order of the words, so that lists of them come out sorted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Op {
            $(#[doc = concat!("`", $word, "`.")] $op,)+
        }

        impl Op {
            /// Every operation, in order.
            const ALL: &[Self] = &[$(Self::$op),+];

            /// The word for it in evidence and in the live stream.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$op => $word,)+
                }
            }
        }
    };
}

ops! {
    Bind = "bind",
    Chmod = "chmod",
    Chown = "chown",
    Connect = "connect",
    Create = "create",
    Denied = "denied",
    Egress = "egress",
    Exec = "exec",
    Exit = "exit",
    Fork = "fork",
    Inherit = "inherit",
    Join = "join",
    Leave = "leave",
    Link = "link",
    Listen = "listen",
    Mkdir = "mkdir",
    Mknod = "mknod",
    Open = "open",
    Ptrace = "ptrace",
    Receive = "receive",
    Refused = "refused",
    Rename = "rename",
    Resolve = "resolve",
    Rmdir = "rmdir",
    Script = "script",
    Send = "send",
    Socket = "socket",
    Symlink = "symlink",
    Truncate = "truncate",
    Unlink = "unlink",
    Unseen = "unseen",
    Xattr = "xattr",
}

impl From<InetOp> for Op {
    fn from(op: InetOp) -> Self {
        match op {
            InetOp::Connect => Self::Connect,
            InetOp::Send => Self::Send,
            InetOp::Egress => Self::Egress,
            InetOp::Listen => Self::Listen,
            InetOp::Bind => Self::Bind,
        }
    }
}

impl From<NameOp> for Op {
    fn from(op: NameOp) -> Self {
        match op {
            NameOp::Rename => Self::Rename,
            NameOp::Unlink => Self::Unlink,
            NameOp::Rmdir => Self::Rmdir,
            NameOp::Link => Self::Link,
            NameOp::Symlink => Self::Symlink,
            NameOp::Mknod => Self::Mknod,
            NameOp::Mkdir => Self::Mkdir,
            NameOp::Truncate => Self::Truncate,
            NameOp::Bind => Self::Bind,
            NameOp::Chmod => Self::Chmod,
            NameOp::Chown => Self::Chown,
            NameOp::Xattr => Self::Xattr,
            NameOp::Open => Self::Open,
            NameOp::Exec => Self::Exec,
        }
    }
}

impl From<SocketOp> for Op {
    fn from(op: SocketOp) -> Self {
        match op {
            SocketOp::Create => Self::Socket,
            SocketOp::Bind => Self::Bind,
            SocketOp::Connect => Self::Connect,
            SocketOp::Send => Self::Send,
        }
    }
}

/// A set of [`Op`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ops(u32);

const _: () = assert!(Op::ALL.len() <= u32::BITS as usize);

impl Ops {
    /// Just one.
    #[must_use]
    pub fn one(op: Op) -> Self {
        Self(1 << op as u32)
    }

    /// Adds those of another set.
    pub fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether one is in the set.
    #[must_use]
    pub fn has(self, op: Op) -> bool {
        self.0 & Self::one(op).0 != 0
    }

    /// The words, sorted.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let all = Op::ALL.iter().copied();
        all.filter(|&op| self.has(op))
            .map(|op| op.word().to_owned())
            .collect()
    }
}

/// When something happened, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since boot.
    pub time_ns: u64,
    /// Milliseconds since the job began.
    pub ms: u32,
    /// Thread id.
    pub tid: u32,
    /// The process and the program that it ran.
    pub by: ImageId,
}

/// What is known about how something came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Everything that was done.
    pub ops: Ops,
    /// How often, all operations together.
    pub count: u64,
    /// When first, in milliseconds since the job began.
    pub first_ms: u32,
    /// Who did it first.
    pub by: ImageId,
}

impl Seen {
    /// Seen for the first time.
    #[must_use]
    pub fn first(op: Op, moment: &Moment) -> Self {
        Self {
            ops: Ops::one(op),
            count: 1,
            first_ms: moment.ms,
            by: moment.by,
        }
    }

    /// Seen again.
    pub fn again(&mut self, op: Op, moment: &Moment) {
        self.merge(&Self::first(op, moment));
    }

    /// Takes in what another record says of the same thing.
    pub fn merge(&mut self, other: &Self) {
        self.ops.add(other.ops);
        self.count = self.count.saturating_add(other.count);
        if other.first_ms < self.first_ms {
            self.first_ms = other.first_ms;
            self.by = other.by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Moment, Op, Ops, Seen};
    use crate::process::ImageId;

    #[test]
    fn words_come_out_sorted() {
        assert!(Op::ALL.is_sorted());
        assert!(Op::ALL.iter().map(|op| op.word()).is_sorted());
    }

    #[test]
    fn the_earliest_sight_says_who_did_it() {
        let at = |ms| Moment {
            time_ns: 0,
            ms,
            tid: 1,
            by: ImageId::UNKNOWN,
        };
        let mut seen = Seen::first(Op::Open, &at(20));
        seen.again(Op::Create, &at(10));
        seen.again(Op::Create, &at(30));
        assert_eq!((seen.count, seen.first_ms), (3, 10));
        assert_eq!(seen.ops.words(), ["create", "open"]);
        assert!(!seen.ops.has(Op::Unlink) && Ops::default().words().is_empty());
    }
}
