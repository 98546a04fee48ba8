//! What a reader gets to see of a judged job, and the only writer to stdout.
//!
//! `explain` says in words what was found, the other rooms put that into one format each. Names come from the job and may be
//! hostile: every format neutralises them in its own way, and tests hold it to that.

mod changes;
mod explain;
mod github;
mod human;
mod json;
mod markdown;
mod phrase;
mod proposed;

use std::io::{self, Write};

use anstream::AutoStream;
use capgate_common::{compare::Judgement, evidence::Evidence, ledger::Ledger, protocol::Sealed};

pub(crate) use changes::changes;
pub(crate) use explain::{seconds, shorten, who};

use crate::{args::Format, base::Proposal};

/// A judged job, as far as it is known: two files that were compared have no job and no evidence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The job's id.
    pub(crate) job: Option<&'a str>,
    /// What the verdict rests on.
    pub(crate) judgement: &'a Judgement,
    /// What is judged.
    pub(crate) ledger: &'a Ledger,
    /// Who did it.
    pub(crate) evidence: Option<&'a Evidence>,
    /// The daemon's remarks.
    pub(crate) notes: &'a [String],
    /// The command.
    pub(crate) argv: &'a [String],
    /// Where the contract came from.
    pub(crate) contract: Option<&'a str>,
    /// What the work tree's own contract would change, where another one counts.
    pub(crate) proposal: Option<&'a Proposal>,
    /// Wall time in milliseconds.
    pub(crate) wall_ms: Option<u64>,
    /// What `capgate run` exits, or would have exited, with.
    pub(crate) exit_code: i32,
}

impl<'a> Subject<'a> {
    /// A finished job.
    pub(crate) fn of_job(sealed: &'a Sealed, exit_code: i32) -> Self {
        Self {
            job: Some(&sealed.job),
            judgement: &sealed.judgement,
            ledger: &sealed.ledger,
            evidence: Some(&sealed.evidence),
            notes: &sealed.notes,
            argv: &sealed.argv,
            contract: sealed.contract_source.as_deref(),
            proposal: None,
            wall_ms: Some(sealed.wall_ms),
            exit_code,
        }
    }

    /// A ledger's file, of whose job nothing else is known.
    pub(crate) fn of_file(ledger: &'a Ledger, judgement: &'a Judgement) -> Self {
        Self {
            job: None,
            judgement,
            ledger,
            evidence: None,
            notes: &[],
            argv: &[],
            contract: None,
            proposal: None,
            wall_ms: None,
            exit_code: judgement.exit_code,
        }
    }

    /// The report in one format. The human one has colours, which the writer takes out where they do not belong.
    pub(crate) fn write(&self, format: Format) -> String {
        match format {
            Format::Human => human::write(self),
            Format::Json => json::write(self),
            Format::Markdown => markdown::write(self),
            Format::Github => github::write(self),
        }
    }
}

/// Writes data to stdout. Colours stay only on a terminal, and not with `NO_COLOR`.
///
/// # Errors
/// When stdout cannot be written; a reader that went away is [`io::ErrorKind::BrokenPipe`].
pub(crate) fn to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = AutoStream::auto(io::stdout().lock());
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes talk to stderr. Nobody is left to tell when that fails.
pub(crate) fn to_stderr(text: &str) {
    let mut stderr = AutoStream::auto(io::stderr().lock());
    let _ = stderr.write_all(text.as_bytes());
}

/// The report as a file has it: without colours.
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests;
