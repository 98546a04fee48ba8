//! For a person, at a terminal or in a log.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use capgate_common::verdict::Verdict;

use super::{
    Subject,
    explain::{self, Item, Point},
    proposed,
};

/// Entries shown of one point; the ledger has them all.
const SHOWN: usize = 30;

const DIM: Style = Style::new().dimmed();

pub(super) fn write(subject: &Subject<'_>) -> String {
    let mut text = String::new();
    let (headline, about) = explain::first_line(subject);
    let style = style(subject);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "capgate: {style}{}{style:#} ({})",
        headline.plain(),
        about.plain()
    );
    for point in explain::points(subject) {
        push_point(&mut text, &point);
    }
    if let Some((heading, items)) = proposed::proposal(subject) {
        let _ = writeln!(text, "  proposal: {}", heading.plain());
        push_items(&mut text, &items);
    }
    for note in explain::notes(subject) {
        let _ = writeln!(text, "  note: {}", note.plain());
    }
    let _ = writeln!(text, "  {DIM}{}{DIM:#}", explain::summary(subject));
    text
}

fn push_point(text: &mut String, point: &Point) {
    let style = of_verdict(point.verdict);
    let _ = writeln!(
        text,
        "  {style}{}{style:#}: {}",
        point.verdict,
        point.what.plain()
    );
    push_items(text, &point.items);
    for line in explain::next_lines(point).lines() {
        let _ = writeln!(text, "    {line}");
    }
}

fn push_items(text: &mut String, items: &[Item]) {
    for item in explain::shown(items, SHOWN) {
        let _ = writeln!(text, "    {} {}", item.sign, item.text.plain());
        if let Some(who) = &item.who {
            let _ = writeln!(text, "        {DIM}{}{DIM:#}", who.plain());
        }
    }
}

/// The colour of the whole: that of its first row.
fn style(subject: &Subject<'_>) -> Style {
    let first = subject.judgement.verdict.first();
    match first {
        Some(Verdict::Match) if !subject.judgement.blind.is_empty() => {
            of_verdict(Verdict::Incomplete)
        }
        Some(&verdict) => of_verdict(verdict),
        None => of_verdict(Verdict::Error),
    }
}

fn of_verdict(verdict: Verdict) -> Style {
    let colour = match verdict {
        Verdict::Match | Verdict::Recorded => AnsiColor::Green,
        Verdict::Incomplete => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    colour.on_default().bold()
}
