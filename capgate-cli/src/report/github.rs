//! Workflow commands: annotations on a run. One line each, since a line of the log is what is a command.

use std::fmt::Write as _;

use capgate_common::verdict::Verdict;

use super::{
    Subject,
    explain::{self, Item, Point},
    proposed,
};

/// Entries shown in one annotation.
const SHOWN: usize = 10;

pub(super) fn write(subject: &Subject<'_>) -> String {
    let mut text = String::new();
    let (headline, about) = explain::first_line(subject);
    let level = match subject.judgement.verdict.first() {
        Some(Verdict::Match | Verdict::Recorded) if subject.judgement.blind.is_empty() => "notice",
        Some(Verdict::Match | Verdict::Recorded) => "warning",
        _ => "error",
    };
    let message = format!(
        "{} ({}); {}",
        headline.plain(),
        about.plain(),
        explain::summary(subject)
    );
    push(&mut text, level, "capgate", &message);
    for point in explain::points(subject) {
        push(
            &mut text,
            "error",
            &format!("capgate {}", point.verdict),
            &message_of(&point),
        );
    }
    if let Some((heading, items)) = proposed::proposal(subject) {
        let message = with_items(&heading.plain(), &items);
        push(&mut text, "warning", "capgate proposal", &message);
    }
    for note in explain::notes(subject) {
        push(&mut text, "notice", "capgate note", &note.plain());
    }
    text
}

fn message_of(point: &Point) -> String {
    let message = with_items(&point.what.plain(), &point.items);
    format!("{message}\n{}", explain::next_lines(point).trim_end())
}

fn with_items(message: &str, items: &[Item]) -> String {
    let items = explain::listed(items, SHOWN);
    format!("{message}\n{items}").trim_end().to_owned()
}

fn push(text: &mut String, level: &str, title: &str, message: &str) {
    let _ = writeln!(
        text,
        "::{level} title={}::{}",
        property(title),
        data(message)
    );
}

/// The message of a command, as the runner undoes it.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A property of a command: it ends at a comma or a colon.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
