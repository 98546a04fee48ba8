//! What was found, in words: what, who, when first, how often, and what a reviewer does next.

use capgate_common::{
    compare::{Finding, NameDifference, Note, Reason},
    escapes,
    event::KIND_NAMES,
    evidence::{Column, Entry, Process},
    outcome::{LOST_INTERRUPTED, LOST_LEASE},
    verdict::Verdict,
};

use super::{Subject, phrase::Phrase};

/// Longest command line shown of a process, in characters.
const COMMAND_WIDTH: usize = 80;
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
    /// What a reviewer does next.
    pub(crate) next: Phrase,
}

/// One entry.
#[derive(Debug)]
pub(crate) struct Item {
    /// `+` for what the job did, `-` for what it did not do, `~` for a value that is another one.
    pub(crate) sign: char,
    /// The entry.
    pub(crate) text: Phrase,
    /// Who did it, when first, how often; `None` when that is not known.
    pub(crate) who: Option<Phrase>,
}

/// The findings, one point for each row of the table that applies.
pub(crate) fn points(subject: &Subject<'_>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for finding in &subject.judgement.findings {
        let point = point(finding, subject);
        match points
            .last_mut()
            .filter(|last| last.verdict == point.verdict)
        {
            Some(last) => last.items.extend(point.items),
            None => points.push(point),
        }
    }
    points
}

fn point(finding: &Finding, subject: &Subject<'_>) -> Point {
    // What `compare` says of itself holds nothing but numbers in these rows.
    let said = || Phrase::words(finding.to_string());
    let (what, items, next) = match finding {
        Finding::CpuKill { .. } | Finding::Cpu { .. } => (said(), Vec::new(), raise_budget()),
        Finding::JobFailed { .. } => (
            said(),
            Vec::new(),
            Phrase::words("see the job's own output; what else it did is judged all the same"),
        ),
        Finding::Incomplete { reason } => incomplete(reason),
        Finding::Net { entry } => (
            Phrase::words("the job connected where ")
                .and_name("allow_net")
                .and(" does not allow it"),
            vec![seen(Column::Net, entry, subject)],
            Phrase::words("find out what the program connects for; if the job is meant to, ")
                .and_name("capgate accept LEDGER --net HOST:PORT")
                .and(" adds the destination to the contract"),
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
            Phrase::words("find out who starts the program; if the job is meant to, ")
                .and_name("capgate accept LEDGER --exec PROGRAM")
                .and(" adds it to the contract"),
        ),
        Finding::Escapes { entry } => (
            Phrase::words("part of the job may have happened out of sight"),
            vec![escape(entry, subject)],
            escape_next(entry),
        ),
    };
    Point {
        verdict: finding.verdict(),
        what,
        items,
        next,
    }
}

fn raise_budget() -> Phrase {
    Phrase::words("find out what became slower; if the job is meant to, raise ")
        .and_name("cpu_budget")
        .and(" of the contract (")
        .and_name("capgate accept LEDGER --cpu")
        .and(", from a run that ended by itself)")
}

fn incomplete(reason: &Reason) -> (Phrase, Vec<Item>, Phrase) {
    let next = match reason {
        Reason::Lost { kind, .. } if kind == LOST_INTERRUPTED || kind == LOST_LEASE => {
            Phrase::words("run it again and let it end by itself")
        }
        // The kernel counts what a full ring had no room for under the record's kind.
        Reason::Lost { kind, .. } if KIND_NAMES.contains(&kind.as_str()) => {
            Phrase::words("run it again; if it happens again raise ")
                .and_name("ring_bytes")
                .and(" in ")
                .and_name("/etc/capgate/capgated.toml")
                .and(", or split the job")
        }
        Reason::Lost { kind, .. } => Phrase::words("look up ")
            .and_name(kind)
            .and(" in docs/limits.md: it says what the job did that cannot be told, and what to do instead"),
        Reason::Unseen { .. } => {
            Phrase::words("if a human accepts that blind spot, add its name to ")
                .and_name("allow_unseen")
                .and(" of the contract")
        }
        Reason::NotRaceFree => {
            Phrase::words("no probe set of this release is race-free: drop ")
                .and_name("require_race_free")
                .and(", from the contract or from the daemon's configuration")
        }
    };
    let item = Item {
        sign: '+',
        text: Phrase::sentence(&reason.to_string()),
        who: None,
    };
    (
        Phrase::words("the recording is not complete, so nobody can tell what else happened"),
        vec![item],
        next,
    )
}

fn writes(
    said: Phrase,
    (expected, found): (&str, &str),
    names: Option<&NameDifference>,
    subject: &Subject<'_>,
) -> (Phrase, Vec<Item>, Phrase) {
    let what = said
        .and("; its digest is ")
        .and_name(found)
        .and(" and not ")
        .and_name(expected);
    let next = Phrase::words("look at each name; if the job is meant to write it, ")
        .and_name("capgate accept LEDGER --write NAME")
        .and(" (or ")
        .and_name("--writes")
        .and(" for all) changes the contract; cover names that move with ")
        .and_name("ignore_writes");
    // Without names to compare with, everything that was written may be what is new.
    let all = &subject.ledger.recording.write_paths;
    let added: Vec<&String> = match names {
        Some(names) => names.added.iter().collect(),
        None => all.iter().collect(),
    };
    let removed = names.map_or(&[][..], |names| &names.removed);
    let added = added
        .into_iter()
        .map(|entry| seen(Column::Writes, entry, subject));
    let removed = removed.iter().map(|entry| Item {
        sign: '-',
        text: Phrase::name(entry),
        who: None,
    });
    (what, added.chain(removed).collect(), next)
}

fn escape(entry: &str, subject: &Subject<'_>) -> Item {
    let mut item = seen(Column::Escapes, entry, subject);
    item.text = item
        .text
        .and(": ")
        .and_all(Phrase::sentence(&escapes::sentence(entry)));
    item
}

fn escape_next(entry: &str) -> Phrase {
    match escapes::acceptable_as(entry) {
        Some(_) => {
            Phrase::words("find out why; if a human accepts the blind spot, add its name (after ")
                .and_name(escapes::DELEGATE_PREFIX)
                .and(") to ")
                .and_name("allow_unseen")
                .and(" of the contract")
        }
        None => Phrase::words("find out why: this can not be accepted by a contract"),
    }
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
        phrase = phrase.and(")");
    }
    if entry.by.is_empty() {
        phrase = phrase.and("by an unknown process");
    }
    let times = match entry.count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    phrase.and(format!(", first at {}, {times}", seconds(entry.first_ms)))
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

/// The remarks that decide nothing.
pub(crate) fn notes(subject: &Subject<'_>) -> Vec<Phrase> {
    let judged = subject.judgement.notes.iter().map(|note| match note {
        // The names are what a reader wants to see.
        Note::NotWritten { names } => names.iter().take(SHOWN_NAMES).fold(
            Phrase::sentence(&note.to_string()).and(":"),
            |phrase, name| phrase.and(" ").and_name(name),
        ),
        note => Phrase::sentence(&note.to_string()),
    });
    let said = subject.notes.iter().map(|note| Phrase::sentence(note));
    judged.chain(said).collect()
}

/// The first line: verdict, job, completeness.
pub(crate) fn first_line(subject: &Subject<'_>) -> (Phrase, Phrase) {
    // Blind spots are in the headline, and their names may come from a contract.
    let headline = Phrase::sentence(&subject.judgement.headline);
    let mut about = Phrase::default();
    if let Some(job) = subject.job {
        about = about.and_all(Phrase::sentence(&format!("job {job}, ")));
    }
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
    format!(
        "net {}, cpu {} s, writes {}, execs {}, escapes {}; {} probes",
        recording.net.len(),
        recording.cpu_sec,
        recording.write_paths.len(),
        recording.execs.len(),
        recording.escapes.len(),
        recording.coverage.probe_set.word()
    )
}
