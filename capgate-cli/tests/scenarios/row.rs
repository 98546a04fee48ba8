//! The language that rows are written in: one input, and its right answer, stated once for every cell and probe set.
//!
//! Lists are words with spaces between them. In commands and in answers `{site}` is the row's own directory; `{site}/repo` is the
//! job's root and working directory, and names in it are relative.

use std::{any::Any, collections::BTreeSet};

use crate::{
    cells::{Cell, PLAIN},
    programs::BIN,
    site::Site,
};

/// What is done outside the job before it starts; what it answers is dropped when the job has ended.
pub(crate) type Outside = Box<dyn Fn(&Site) -> Box<dyn Any> + Send + Sync>;

/// One scenario.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) cells: &'static [Cell],
    /// What may be declared absent: see `xtask/src/capability.rs`.
    pub(crate) needs: Option<&'static str>,
    pub(crate) uid: u32,
    pub(crate) given: &'static str,
    pub(crate) outside: Option<Outside>,
    /// Where the job's root is, in the row's directory. The job works there.
    pub(crate) root: &'static str,
    pub(crate) command: Vec<String>,
    pub(crate) right: Right,
    pub(crate) tracepoint: Tracepoint,
}

/// The right answer.
pub(crate) struct Right {
    pub(crate) net: BTreeSet<String>,
    pub(crate) writes: BTreeSet<String>,
    pub(crate) execs: BTreeSet<String>,
    pub(crate) escapes: BTreeSet<String>,
    /// All of the column; `None`: the contract refuses nothing.
    pub(crate) reaches: Option<BTreeSet<String>>,
    /// What the contract refuses.
    pub(crate) refuse: BTreeSet<String>,
    /// Members of lists of the evidence that must be there. There may be more.
    pub(crate) evidence: Vec<(List, String)>,
    /// Why nobody can tell the whole, in both sets; nothing: the ledger is complete.
    pub(crate) incomplete: BTreeSet<String>,
    /// What capgate ends with.
    pub(crate) code: i32,
    /// The job is judged by a contract that allows what it connects to and writes.
    pub(crate) gated: bool,
    /// The contract allows these connections and no others, and the kernel enforces it.
    pub(crate) allowed: Option<BTreeSet<String>>,
}

/// A list of the evidence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    Transient,
    Own,
    Probes,
    Metadata,
    Inherited,
    /// Members of the column `net` that the kernel refused.
    Denied,
}

/// What the `tracepoint` set makes of a row.
pub(crate) enum Tracepoint {
    /// The right answer.
    Right,
    /// Part of the right answer, incomplete for exactly these reasons.
    Incomplete {
        reasons: BTreeSet<String>,
        /// Entries under other names than the right ones.
        instead: BTreeSet<String>,
    },
    /// Not asked, for a reason that its documentation gives.
    Excluded(&'static str),
}

/// What the `tracepoint` set may be missing, by the name in `coverage.unseen` or `lost`.
pub(crate) fn incomplete(reasons: &str) -> Tracepoint {
    incomplete_and(reasons, "")
}

/// The same, where what was missed is there under other names.
pub(crate) fn incomplete_and(reasons: &str, instead: &str) -> Tracepoint {
    Tracepoint::Incomplete {
        reasons: words(reasons),
        instead: words(instead),
    }
}

/// What the `tracepoint` set is not asked.
pub(crate) fn excluded(why: &'static str) -> Tracepoint {
    Tracepoint::Excluded(why)
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Row {
    fn new(name: &'static str, command: Vec<String>) -> Self {
        let execs = BTreeSet::from([command[0].clone()]);
        Self {
            name,
            cells: PLAIN,
            needs: None,
            uid: 0,
            given: "",
            outside: None,
            root: "repo",
            command,
            right: Right {
                net: BTreeSet::new(),
                writes: BTreeSet::new(),
                execs,
                escapes: BTreeSet::new(),
                reaches: None,
                refuse: BTreeSet::new(),
                evidence: Vec::new(),
                incomplete: BTreeSet::new(),
                code: 0,
                gated: false,
                allowed: None,
            },
            tracepoint: Tracepoint::Right,
        }
    }

    /// A script of busybox's shell, whose applets are the only commands.
    pub(crate) fn sh(name: &'static str, script: &str) -> Self {
        let busybox = format!("{BIN}/busybox");
        Self::new(
            name,
            vec![busybox, "sh".into(), "-ec".into(), script.into()],
        )
    }

    /// A program of `programs/` and its arguments.
    pub(crate) fn program(name: &'static str, line: &str) -> Self {
        let mut command: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        command[0] = format!("{BIN}/{}", command[0]);
        Self::new(name, command)
    }

    /// A program of the machine and its arguments, which runs itself and `execs`.
    pub(crate) fn command(name: &'static str, command: &[&str]) -> Self {
        Self::new(name, command.iter().map(|&word| word.to_owned()).collect())
    }

    /// The cells that run it; [`PLAIN`] unless said.
    pub(crate) fn cells(mut self, cells: &'static [Cell]) -> Self {
        self.cells = cells;
        self
    }

    /// What the machine may be declared to lack.
    pub(crate) fn needs(mut self, capability: &'static str) -> Self {
        self.needs = Some(capability);
        self
    }

    /// The user who runs it; root unless said.
    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    /// What is in the root before: `d/` is a directory, `l->t` a symbolic link, anything else a file.
    pub(crate) fn given(mut self, names: &'static str) -> Self {
        self.given = names;
        self
    }

    /// Something that is done outside the job before it starts, and lasts until it has ended.
    pub(crate) fn outside<T: 'static>(
        mut self,
        outside: impl Fn(&Site) -> T + Send + Sync + 'static,
    ) -> Self {
        self.outside = Some(Box::new(move |site| Box::new(outside(site))));
        self
    }

    /// Another root than `repo`.
    pub(crate) fn root(mut self, root: &'static str) -> Self {
        self.root = root;
        self
    }

    /// All of the column.
    pub(crate) fn net(mut self, entries: &str) -> Self {
        self.right.net = words(entries);
        self
    }

    /// All of the column.
    pub(crate) fn writes(mut self, entries: &str) -> Self {
        self.right.writes = words(entries);
        self
    }

    /// All of the column, for names that no word can be.
    pub(crate) fn writes_exactly(mut self, entries: &[&str]) -> Self {
        self.right.writes = entries.iter().map(|&entry| entry.to_owned()).collect();
        self
    }

    /// What runs beside the command itself.
    pub(crate) fn execs(mut self, entries: &str) -> Self {
        self.right.execs.extend(words(entries));
        self
    }

    /// All of the column. The job is gated by a contract that it keeps otherwise.
    pub(crate) fn escapes(mut self, entries: &str) -> Self {
        self.right.escapes = words(entries);
        self.right.gated = true;
        self.right.code = 120;
        self
    }

    /// The kernel refuses connections that these patterns do not allow. The job keeps its contract, but for what [`Row::refused`] says.
    pub(crate) fn enforced(mut self, patterns: &str) -> Self {
        self.right.allowed = Some(words(patterns));
        self.right.gated = true;
        self
    }

    /// All of the column, of a job that is refused this. It is gated by a contract that it keeps otherwise.
    pub(crate) fn reaches(mut self, refuse: &str, entries: &str) -> Self {
        self.right.refuse = words(refuse);
        self.right.code = if entries.is_empty() { 0 } else { 120 };
        self.right.reaches = Some(words(entries));
        self.right.gated = true;
        self
    }

    /// All of the column, refused every time.
    pub(crate) fn refused(mut self, entries: &str) -> Self {
        self.right.code = 120;
        self.net(entries).evidence(List::Denied, entries)
    }

    /// Members of a list of the evidence.
    pub(crate) fn evidence(mut self, list: List, entries: &str) -> Self {
        let entries = words(entries).into_iter().map(|entry| (list, entry));
        self.right.evidence.extend(entries);
        self
    }

    /// What the command ends with; 0 unless said.
    pub(crate) fn code(mut self, code: i32) -> Self {
        self.right.code = code;
        self
    }

    /// Why no probe set can tell the whole: the columns are as stated, and the ledger says that it is not complete.
    pub(crate) fn incomplete(mut self, reasons: &str) -> Self {
        self.right.incomplete = words(reasons);
        self.right.code = 121;
        self
    }

    /// What the `tracepoint` set makes of it; the right answer unless said.
    pub(crate) fn tracepoint(mut self, tracepoint: Tracepoint) -> Self {
        self.tracepoint = tracepoint;
        self
    }
}
