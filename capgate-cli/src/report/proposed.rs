//! What the work tree's own contract would change, where the base's counts.

use capgate_common::change::Change;

use super::{Subject, explain::Item, phrase::Phrase};
use crate::base::Proposal;

/// A heading and what belongs under it; `None` when nothing is proposed.
pub(crate) fn proposal(subject: &Subject<'_>) -> Option<(Phrase, Vec<Item>)> {
    let counts = Phrase::default().and_name(subject.contract.unwrap_or("the base"));
    let counts = counts.and(" counts until a human merges it");
    Some(match subject.proposal? {
        Proposal::Changed(changes) => (
            Phrase::words("the work tree's own contract says something else; ").and_all(counts),
            changes.iter().map(item).collect(),
        ),
        Proposal::Removed => (
            Phrase::words("the work tree has no contract any more; ").and_all(counts),
            Vec::new(),
        ),
        Proposal::Unusable(why) => (
            Phrase::words("the work tree's own contract cannot be used: ")
                .and_all(Phrase::sentence(why))
                .and("; ")
                .and_all(counts),
            Vec::new(),
        ),
    })
}

/// A change as a line.
pub(crate) fn item(change: &Change) -> Item {
    let (sign, text) = match change {
        Change::Added { key, member } => ('+', Phrase::words(format!("{key}: ")).and_name(member)),
        Change::Removed { key, member } => {
            ('-', Phrase::words(format!("{key}: ")).and_name(member))
        }
        Change::Value { key, from, to } => {
            let value = |value: &Option<String>| match value {
                Some(value) => Phrase::name(value),
                None => Phrase::words("none"),
            };
            let text = Phrase::words(format!("{key}: "));
            (
                '~',
                text.and_all(value(from)).and(" to ").and_all(value(to)),
            )
        }
    };
    Item {
        sign,
        text,
        key: change.key().to_owned(),
        who: None,
    }
}
