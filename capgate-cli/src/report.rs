//! What a reader gets to see of a judged job, and the only writer to stdout.
//!
//! `explain` says in words what was found, the other rooms put that into one format each. Names come from the job and may be
//! hostile: every format neutralises them in its own way, and tests hold it to that.

mod changes;
mod explain;
mod github;
mod gitlab;
mod human;
mod json;
mod junit;
mod markdown;
mod next;
mod phrase;
mod proposed;
mod summary;

use std::io::{self, Write};

use anstream::AutoStream;
use anyhow::Context as _;
use capgate_common::{compare::Judgement, evidence::Evidence, ledger::Ledger, protocol::Sealed};

pub(crate) use changes::changes;
pub(crate) use explain::{seconds, shorten, who};

pub(crate) use next::Files;
pub(crate) use summary::StepSummary;

use crate::{
    args::{Format, Reporting},
    base::Proposal,
    output::Output,
    tracked::Tracked,
};

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
    /// The files that a reader works with; `None` for a stored job.
    pub(crate) files: Option<&'a Files>,
    /// The directories that git tracks something in, when that is known.
    pub(crate) tracked: Option<&'a Tracked>,
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
            files: None,
            tracked: None,
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
            files: None,
            tracked: None,
        }
    }

    /// The report in one format. The human one has colours, which the writer takes out where they do not belong.
    pub(crate) fn write(&self, format: Format) -> String {
        match format {
            Format::Human => human::write(self),
            Format::Json => json::write(self),
            Format::Markdown => markdown::write(self),
            Format::Github => github::write(self),
            Format::Gitlab => gitlab::write(self),
            Format::Junit => junit::write(self),
        }
    }
}

/// Where a report goes, and how it is written: settled before anything of a job runs.
#[derive(Debug)]
pub(crate) struct Delivery {
    format: Format,
    /// `None`: stdout, and for a person who runs a job stderr.
    file: Option<Output>,
    /// A runner's summary, which a report in its format goes into as well.
    summary: Option<StepSummary>,
}

impl Delivery {
    /// Opens what there is to open. An old report goes first.
    ///
    /// # Errors
    /// When the file cannot be prepared.
    pub(crate) fn prepare(reporting: &Reporting) -> anyhow::Result<Self> {
        let format = reporting.format;
        let file = reporting.report.as_deref();
        let file = file.map(|path| Output::prepare("report", path));
        let summary = match format {
            Format::Github => StepSummary::find(),
            _ => Ok(None),
        };
        Ok(Self {
            format,
            file: file.transpose()?,
            // The gate does not depend on it.
            summary: summary.unwrap_or_else(|error| {
                to_stderr(&format!("capgate: {error}\n"));
                None
            }),
        })
    }

    /// Whether the report is a person's, at the end of a job that shares the terminal.
    pub(crate) fn is_talk(&self) -> bool {
        self.format == Format::Human && self.file.is_none()
    }

    /// Writes a report.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn deliver(self, subject: &Subject<'_>) -> anyhow::Result<()> {
        let text = subject.write(self.format);
        if let Some(summary) = self.summary
            && let Err(error) = summary.append(&subject.write(Format::Markdown))
        {
            to_stderr(&format!("capgate: {error}\n"));
        }
        if let Some(file) = self.file {
            return Ok(file.write(plain(&text).as_bytes())?);
        }
        // A workflow command begins a line, and a job may have left one open.
        let start = if self.format == Format::Github && subject.job.is_some() {
            "\n"
        } else {
            ""
        };
        to_stdout(&format!("{start}{text}")).context("cannot write the report to stdout")
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
