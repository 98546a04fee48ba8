//! The table of what the witnesses found, and the page that holds it.

use std::fmt::Write as _;

use super::suites::Suite;

/// What a suite came to.
pub(crate) struct Row {
    /// The suite.
    pub(crate) suite: &'static Suite,
    /// Tests that passed.
    pub(crate) tests: usize,
    /// Records that the daemon read from the ring.
    pub(crate) records: u64,
    /// Members of the write set.
    pub(crate) written: usize,
    /// Names that came and went.
    pub(crate) transient: usize,
    /// Names and programs that only a witness has.
    pub(crate) missed: usize,
    /// Names and programs that only capgate has.
    pub(crate) invented: usize,
    /// Which probes recorded it.
    pub(crate) probe_set: String,
    /// The running kernel.
    pub(crate) kernel: String,
}

/// The heading of the table.
const HEAD: &str = "\
| suite | version | language | tests | records | write set | transient | missed | invented | probe set | kernel |
|---|---|---|---|---|---|---|---|---|---|---|
";

/// What stands above the table.
const PAGE: &str = "\
# Witnesses

Real test suites, each run once as a job of an unprivileged user, with two witnesses that know nothing of capgate's probes: `strace -f` inside the
job, and a walk over the checkout, the job's home and its temporary directories before and after. *Missed* are names and programs that a witness saw
and the ledger and its evidence do not have, or do not count although they count; *invented* are those that they have and no witness saw, or
count although they came and went.

This page is written by `cargo xtask witness`, as root; `cargo xtask witness SUITE…` runs some suites and prints their rows. What is not 0 is printed
by name, and the job's ledger, evidence and strace's log are kept. The suites and their digests are in `xtask/src/witness/suites.rs`.

";

/// The rows as Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | `{}` | {} |",
            row.suite.name,
            row.suite.version,
            row.suite.language,
            row.tests,
            row.records,
            row.written,
            row.transient,
            row.missed,
            row.invented,
            row.probe_set,
            row.kernel
        );
    }
    text
}

/// The whole page.
pub(crate) fn page(rows: &[Row]) -> String {
    PAGE.to_owned() + &table(rows)
}
