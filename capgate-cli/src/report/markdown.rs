//! For a pull request or a job summary.

use std::fmt::Write as _;

use capgate_common::compare::PatternUse;

use super::{
    Subject,
    explain::{self, Item},
    phrase::{Part, Phrase},
    proposed,
};
use crate::shown::harmless;

/// Entries shown of one point: what a page may hold is bounded.
const SHOWN: usize = 100;

pub(super) fn write(subject: &Subject<'_>) -> String {
    let mut text = String::new();
    let (headline, about) = explain::first_line(subject);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "### capgate: {}\n", show(&headline));
    let _ = writeln!(text, "{}; {}.", show(&about), explain::summary(subject));
    for point in explain::points(subject) {
        let _ = writeln!(text, "\n**{}**: {}\n", point.verdict, show(&point.what));
        push_items(&mut text, &point.items);
        for next in &point.next {
            let _ = writeln!(text, "\n*Next*: {}.", show(next));
        }
        if let Some(accept) = &point.accept {
            let _ = writeln!(text, "\n{}", code(accept));
        }
    }
    if let Some((heading, items)) = proposed::proposal(subject) {
        let _ = writeln!(text, "\n**proposal**: {}\n", show(&heading));
        push_items(&mut text, &items);
    }
    let notes = explain::notes(subject);
    if !notes.is_empty() {
        text.push_str("\nNotes:\n\n");
    }
    for note in notes {
        let _ = writeln!(text, "- {}", show(&note));
    }
    push_patterns(&mut text, &subject.judgement.patterns);
    text
}

/// What each pattern of the contract covered, folded up. A list and no table, whose cells end at a `|` even in code.
fn push_patterns(text: &mut String, patterns: &[PatternUse]) {
    if patterns.is_empty() {
        return;
    }
    let unused = patterns.iter().filter(|it| it.entries == 0).count();
    let _ = writeln!(
        text,
        "\n<details><summary>Patterns of the contract: {}, of which {unused} covered nothing</summary>\n",
        patterns.len()
    );
    for PatternUse {
        key,
        pattern,
        entries,
    } in patterns.iter().take(SHOWN)
    {
        let _ = writeln!(
            text,
            "- {} {}: {entries}",
            code(&harmless(key)),
            code(&harmless(pattern))
        );
    }
    if let Some(more) = patterns.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let _ = writeln!(text, "- and {more} more");
    }
    text.push_str("\n</details>\n");
}

fn push_items(text: &mut String, items: &[Item]) {
    for item in explain::shown(items, SHOWN) {
        let sign = match item.sign {
            '-' => "removed ",
            '~' => "changed ",
            _ => "",
        };
        let _ = write!(text, "- {sign}{}", show(&item.text));
        if let Some(who) = &item.who {
            let _ = write!(text, " {}", show(who));
        }
        text.push('\n');
    }
}

/// Only words of ours stand outside of code spans: inside of one nothing is markup, a mention or a link.
fn show(phrase: &Phrase) -> String {
    let parts = phrase.parts().iter().map(|part| match part {
        Part::Words(text) => text.replace('<', "&lt;"),
        Part::Name(text) | Part::Said(text) => code(text),
    });
    parts.collect()
}

/// A code span: its fence is longer than any run of backticks inside, so that nothing inside ends it.
fn code(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for character in text.chars() {
        run = if character == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    // One space at each end is taken off again by the reader, and only so may the text begin or end with a backtick.
    if longest > 0 || text.starts_with(' ') || text.is_empty() {
        format!("{fence} {text} {fence}")
    } else {
        format!("{fence}{text}{fence}")
    }
}
