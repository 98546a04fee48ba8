//! Rows whose right answer the recorder does not give yet. A row that passes must leave this list: its passing is an error.

use capgate_common::ledger::ProbeSet;

/// A row that fails for now.
pub(crate) struct Awaited {
    pub(crate) name: &'static str,
    /// The set that falls short; `None`: both.
    pub(crate) probe_set: Option<ProbeSet>,
    /// What is missing.
    pub(crate) why: &'static str,
}

/// All of them.
pub(crate) const AWAITED: [Awaited; 0] = [];
