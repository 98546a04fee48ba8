//! What was found, in words: what, who, when first, how often, and what a reviewer does next.

use std::{borrow::Cow, fmt::Write as _};

use capgate_common::{
    compare::{Finding, NameDifference, Note, Reason},
    escapes,
    evidence::{Column, DENIED, Entry, Process},
    verdict::Verdict,
};

use super::{Subject, next, phrase::Phrase};
use crate::tracked::Tracked;

/// Longest command line shown of a process, in characters.
const COMMAND_WIDTH: usize = 80;
/// Skipped units shown in one note: a skip is to be seen, and a report has an end.
const SHOWN_UNITS: usize = 200;
/// Names shown in one note.
const SHOWN_NAMES: usize = 20;

/// Everything about one row of the table of verdicts.
#[derive(Debug)]
pub(crate) struct Point {
    /// The row.
    pub(crate) verdict: Verdict,
    /// What is the matter.
    pub(crate) what: Phrase,
    /// The entries that it is about.
    pub(crate) items: Vec<Item>,
    /// What a reviewer does next; each thing once.
    pub(crate) next: Vec<Phrase>,
    /// The line that accepts all of it, for a shell. Made harmless.
    pub(crate) accept: Option<String>,
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// `+` for what the job did, `-` for what it did not do, `~` for a value that is another one.
    pub(crate) sign: char,
    /// The entry.
    pub(crate) text: Phrase,
    /// What the item is, as the ledger or the contract has it: the same in every run. Not made harmless.
    pub(crate) key: String,
    /// Who did it, when first, how often; `None` when that is not known.
    pub(crate) who: Option<Phrase>,
}

impl Item {
    /// What stands for the entries that are not shown.
    pub(crate) fn rest(more: usize) -> Self {
        Self {
            sign: '…',
            text: Phrase::words(format!("and {more} more, in the files")),
            key: "more".to_owned(),
            who: None,
        }
    }
}

/// The findings, one point for each row of the table that applies.
pub(crate) fn points(subject: &Subject<'_>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for finding in &subject.judgement.findings {
        let verdict = finding.verdict();
        let (what, items) = found(finding, subject);
        let action = next::action(finding);
        match points.last_mut().filter(|last| last.verdict == verdict) {
            Some(last) => {
                last.items.extend(items);
                if !last.next.contains(&action) {
                    last.next.push(action);
                }
            }
            None => points.push(Point {
                verdict,
                what,
                items,
                next: vec![action],
                accept: next::accept_line(subject, verdict),
            }),
        }
    }
    points
}

fn found(finding: &Finding, subject: &Subject<'_>) -> (Phrase, Vec<Item>) {
    // What `compare` says of itself holds nothing but numbers in these rows.
    let said = || Phrase::words(finding.to_string());
    match finding {
        Finding::Reach { entry } => (
            Phrase::words("the job reached for what ")
                .and_name("refuse")
                .and(" of the contract forbids"),
            vec![seen(Column::Reaches, entry, subject)],
        ),
        Finding::CpuKill { .. } | Finding::Cpu { .. } | Finding::JobFailed { .. } => {
            (said(), Vec::new())
        }
        Finding::Incomplete { reason } => (
            Phrase::words("the recording is not complete, so nobody can tell what else happened"),
            vec![missing(reason)],
        ),
        Finding::Net { entry } => (
            Phrase::words("the job connected where ")
                .and_name("allow_net")
                .and(" does not allow it"),
            vec![seen(Column::Net, entry, subject)],
        ),
        Finding::Writes {
            expected,
            found,
            names,
        } => writes(said(), (expected, found), names.as_ref(), subject),
        Finding::Execs { entry } => (
            Phrase::words("the job ran a program that ")
                .and_name("allow_exec")
                .and(" does not allow"),
            vec![seen(Column::Execs, entry, subject)],
        ),
        Finding::Escapes { entry } => (
            Phrase::words("part of the job may have happened out of sight"),
            vec![escape(entry, subject)],
        ),
        Finding::Tests { mismatch } => (
            Phrase::words("the suite did not test what the contract pins"),
            vec![Item {
                sign: '~',
                text: Phrase::sentence(&mismatch.to_string()),
                key: mismatch.key().to_owned(),
                who: None,
            }],
        ),
    }
}

fn missing(reason: &Reason) -> Item {
    let key = match reason {
        Reason::Lost { kind, .. } => format!("lost {kind}"),
        Reason::Unseen { name } => format!("unseen {name}"),
        Reason::NotRaceFree => "race".to_owned(),
        Reason::NotWatched => "unwatched".to_owned(),
    };
    Item {
        sign: '+',
        text: Phrase::sentence(&reason.to_string()),
        key,
        who: None,
    }
}

fn writes(
    said: Phrase,
    (expected, found): (&str, &str),
    names: Option<&NameDifference>,
    subject: &Subject<'_>,
) -> (Phrase, Vec<Item>) {
    let what = said
        .and("; its digest is ")
        .and_name(found)
        .and(" and not ")
        .and_name(expected);
    // Without names to compare with, everything that was written may be what is new.
    let all = &subject.ledger.recording.write_paths;
    let added: Vec<&String> = match names {
        Some(names) => names.added.iter().collect(),
        None => all.iter().collect(),
    };
    let removed = names.map_or(&[][..], |names| &names.removed);
    let added = added.into_iter().map(|entry| {
        let mut item = seen(Column::Writes, entry, subject);
        let directory = Tracked::directory(subject.tracked, entry).phrase();
        item.text = item.text.and(format!(" ({directory})"));
        item
    });
    let removed = removed.iter().map(|entry| Item {
        sign: '-',
        text: Phrase::name(entry),
        key: entry.clone(),
        who: None,
    });
    (what, added.chain(removed).collect())
}

fn escape(entry: &str, subject: &Subject<'_>) -> Item {
    let mut item = seen(Column::Escapes, entry, subject);
    item.text = item
        .text
        .and(": ")
        .and_all(Phrase::sentence(&escapes::sentence(entry)));
    item
}

fn seen(column: Column, entry: &str, subject: &Subject<'_>) -> Item {
    let known = subject.evidence.and_then(|evidence| {
        evidence
            .entries
            .iter()
            .find(|it| it.column == column && it.entry == entry)
    });
    Item {
        sign: '+',
        text: Phrase::name(entry),
        key: entry.to_owned(),
        who: known.map(who),
    }
}

/// Who did it, when first, how often.
pub(crate) fn who(entry: &Entry) -> Phrase {
    let mut phrase = Phrase::default();
    for (index, process) in entry.by.iter().enumerate() {
        phrase = phrase
            .and(if index == 0 { "by " } else { " < " })
            .and_name(&command_line(process))
            .and(format!(" (pid {}", process.pid));
        if !process.exe.is_empty() && !process.argv.is_empty() {
            phrase = phrase.and(", ").and_name(&process.exe);
        }
        // Of what ended well there is nothing to say.
        if let Some(status) = process.status.filter(|&status| status != 0) {
            phrase = phrase.and(format!(", status {status}"));
        }
        phrase = phrase.and(")");
    }
    if entry.by.is_empty() {
        phrase = phrase.and("by an unknown process");
    }
    let times = match entry.count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let refused = entry.ops.iter().any(|op| op == DENIED);
    let refused = if refused { ", denied" } else { "" };
    phrase.and(format!(
        ", first at {}, {times}{refused}",
        seconds(entry.first_ms)
    ))
}

/// Milliseconds as seconds.
pub(crate) fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms / 1000, ms % 1000)
}

fn command_line(process: &Process) -> String {
    if process.argv.is_empty() {
        return match process.exe.as_str() {
            "" => "?".to_owned(),
            exe => exe.to_owned(),
        };
    }
    shorten(&process.argv.join(" "), COMMAND_WIDTH)
}

/// At most `width` characters of a text.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is said of a capability, with the units that were skipped for it.
fn skipped(said: Phrase, units: &[String]) -> Phrase {
    let begun = said.and(if units.is_empty() { "" } else { ":" });
    let named = units
        .iter()
        .take(SHOWN_UNITS)
        .fold(begun, |phrase, unit| phrase.and(" ").and_name(unit));
    match units.len().saturating_sub(SHOWN_UNITS) {
        0 => named,
        more => named.and(format!(" … and {more} more, in the ledger")),
    }
}

/// The remarks that decide nothing.
pub(crate) fn notes(subject: &Subject<'_>) -> Vec<Phrase> {
    let judged = subject.judgement.notes.iter().map(|note| match note {
        // The names are what a reader wants to see.
        Note::NotWritten { names } => names.iter().take(SHOWN_NAMES).fold(
            Phrase::sentence(&note.to_string()).and(":"),
            |phrase, name| phrase.and(" ").and_name(name),
        ),
        Note::Absent { units, .. } => skipped(Phrase::sentence(&note.to_string()), units),
        note => Phrase::sentence(&note.to_string()),
    });
    let said = subject.notes.iter().map(|note| Phrase::sentence(note));
    judged.chain(said).collect()
}

/// Entries as lines of plain text, at most so many.
pub(super) fn listed(items: &[Item], most: usize) -> String {
    let mut text = String::new();
    for item in shown(items, most) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{} {}", item.sign, item.text.plain());
        if let Some(who) = &item.who {
            let _ = write!(text, " {}", who.plain());
        }
        text.push('\n');
    }
    text
}

/// The first entries, and what stands for the others.
pub(super) fn shown(items: &[Item], most: usize) -> impl Iterator<Item = Cow<'_, Item>> {
    let rest = items.len().checked_sub(most).filter(|&more| more > 0);
    let first = items.iter().take(most).map(Cow::Borrowed);
    first.chain(rest.map(|more| Cow::Owned(Item::rest(more))))
}

/// What to do next, as lines of plain text.
pub(super) fn next_lines(point: &Point) -> String {
    let mut text = String::new();
    for next in &point.next {
        let _ = writeln!(text, "next: {}", next.plain());
    }
    if let Some(accept) = &point.accept {
        let _ = writeln!(text, "      {accept}");
    }
    text
}

/// The first line: verdict, job, contract, completeness.
pub(crate) fn first_line(subject: &Subject<'_>) -> (Phrase, Phrase) {
    // Blind spots are in the headline, and their names may come from a contract.
    let headline = Phrase::sentence(&subject.judgement.headline);
    let mut about = Phrase::default();
    if let Some(job) = subject.job {
        about = about.and("job ").and_all(Phrase::sentence(job)).and(", ");
    }
    about = match subject.contract {
        Some(contract) => about.and("contract ").and_name(contract).and(", "),
        None => about.and("no contract, "),
    };
    about = about.and(if subject.judgement.complete {
        "recording complete"
    } else {
        "recording NOT complete"
    });
    if let Some(wall_ms) = subject.wall_ms {
        about = about.and(format!(", {}", seconds(wall_ms)));
    }
    about = about.and(format!(", exit {}", subject.exit_code));
    (headline, about)
}

/// What was recorded, in numbers.
pub(crate) fn summary(subject: &Subject<'_>) -> String {
    let recording = &subject.ledger.recording;
    let budget = match subject.ledger.cpu_budget {
        Some(budget) => format!(" of {budget}"),
        None => String::new(),
    };
    format!(
        "net {}, cpu {}{budget} s, writes {}, execs {}, escapes {}; {} probes",
        recording.net.len(),
        recording.cpu_sec,
        recording.write_paths.len(),
        recording.execs.len(),
        recording.escapes.len(),
        recording.coverage.probe_set.word()
    )
}
