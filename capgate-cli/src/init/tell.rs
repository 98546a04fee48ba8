//! What a human is shown after a contract was written: what it says, why, and what it leaves to decide.

use std::{fmt::Write as _, path::Path};

use capgate_common::{
    evidence::{Column, Entry},
    ledger,
};

use super::{
    Seen,
    draft::Draft,
    gitignore::Ignored,
    moving::{Proposed, Why},
};
use crate::{
    report,
    shown::{harmless, shown},
};

/// Names shown of one list.
const SHOWN: usize = 10;
/// Names shown of one pattern.
const EXAMPLES: usize = 3;

/// All of it, as text.
pub(crate) fn text(path: &Path, draft: &Draft, runs: &[Seen], ignored: &Ignored) -> String {
    let mut text = String::new();
    let count = match runs.len() {
        1 => "one run".to_owned(),
        count => format!("{count} runs"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Wrote `{}` from {count}.", shown(path));
    let _ = writeln!(
        text,
        "  writes: {}, digest {}",
        match draft.writes.len() {
            0 => "nothing".to_owned(),
            1 => "one name".to_owned(),
            count => format!("{count} names"),
        },
        ledger::digest(&draft.writes)
    );
    let _ = writeln!(
        text,
        "  cpu_budget: {} s, with head room; at most {} s were used",
        draft.budget(),
        draft.cpu_sec
    );
    patterns(&mut text, draft, runs);
    destinations(&mut text, draft, runs);
    for name in &draft.blind {
        let _ = writeln!(
            text,
            "  blind spot: the job used `{0}`, and what happened there was not recorded; the gate fails until a human adds \
             `{0}` to `allow_unseen`",
            harmless(name)
        );
    }
    match ignored {
        Ignored::Already => {}
        Ignored::Added(line, file) => {
            let _ = writeln!(text, "  {}: added `{}`", shown(file), harmless(line));
        }
        Ignored::Refused(why) => {
            let _ = writeln!(
                text,
                "  .gitignore: left alone ({}); keep the ledger out of git",
                harmless(why)
            );
        }
    }
    if runs.len() < 2 {
        text.push_str("  note: names that move are not seen in one run; give it two or more\n");
    }
    text.push_str(
        "Next: read the contract, above all each pattern; commit it, and let an owner review every change of it (CODEOWNERS).\n",
    );
    text
}

fn patterns(text: &mut String, draft: &Draft, runs: &[Seen]) {
    if !draft.names.patterns.is_empty() {
        text.push_str("  ignore_writes: what these patterns cover is not compared\n");
    }
    for pattern in &draft.names.patterns {
        let _ = writeln!(
            text,
            "    `{}`: {}; {}",
            harmless(&pattern.glob),
            why(pattern, runs.len()),
            examples(&pattern.names)
        );
        let mut who = pattern
            .names
            .iter()
            .filter_map(|name| find(Column::Writes, name, runs));
        if let Some(entry) = who.next() {
            let _ = writeln!(text, "        {}", report::who(entry).plain());
        }
    }
    if !draft.names.uncovered.is_empty() {
        let _ = writeln!(
            text,
            "  NOT covered: {} move from run to run and have too little in common for a pattern; the gate will fail until the job \
             writes them elsewhere or a human covers them",
            examples(&draft.names.uncovered)
        );
    }
}

fn why(pattern: &Proposed, runs: usize) -> String {
    match &pattern.why {
        Why::Moved => "others in each run".to_owned(),
        Why::Cache => "a tool's own directory, filled differently".to_owned(),
        Why::Looks(look) => look.phrase().to_owned(),
        Why::OnlyIn(had) => {
            let had: Vec<String> = had.iter().map(ToString::to_string).collect();
            format!("only in run {} of {runs}", had.join(", "))
        }
    }
}

fn examples(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(EXAMPLES)
        .map(|name| format!("`{}`", harmless(name)))
        .collect();
    match names.len() {
        1 => shown.join(", "),
        count => format!("{count} names, such as {}", shown.join(", ")),
    }
}

fn destinations(text: &mut String, draft: &Draft, runs: &[Seen]) {
    let heading = if draft.allow_seen {
        "  allow_net: these connections are allowed from now on"
    } else {
        "  allow_net: nothing is allowed; these were seen, and the gate fails until a human adds them (or --allow-seen does)"
    };
    if !draft.net.is_empty() {
        let _ = writeln!(text, "{heading}");
    }
    for pattern in draft.net.iter().take(SHOWN) {
        let _ = writeln!(text, "    `{}`", harmless(pattern));
        if let Some(entry) = find(Column::Net, pattern, runs) {
            let _ = writeln!(text, "        {}", report::who(entry).plain());
        }
    }
    if let Some(more) = draft.net.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let _ = writeln!(text, "    … and {more} more");
    }
    for entry in &draft.unknown {
        let _ = writeln!(
            text,
            "  allow_net: no pattern of this version permits `{}`, which was seen",
            harmless(entry)
        );
    }
}

fn find<'a>(column: Column, name: &str, runs: &'a [Seen]) -> Option<&'a Entry> {
    runs.iter()
        .filter_map(|run| run.evidence.as_ref())
        .flat_map(|evidence| &evidence.entries)
        .find(|it| it.column == column && it.entry == name)
}
