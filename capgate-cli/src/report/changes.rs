//! Differences as lines: what a reviewer reads, and what goes into a pull request.

use std::fmt::Write as _;

use capgate_common::{
    change::Change,
    evidence::{Column, Evidence},
};

use super::{explain, proposed};

/// A line for each change, and under it who did it, as far as the evidence tells.
pub(crate) fn changes(changes: &[Change], evidence: Option<&Evidence>) -> String {
    let mut text = String::new();
    for change in changes {
        let item = proposed::item(change);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}", item.sign, item.text.plain());
        if let Some(who) = evidence.and_then(|evidence| who(change, evidence)) {
            let _ = writeln!(text, "    {who}");
        }
    }
    text
}

fn who(change: &Change, evidence: &Evidence) -> Option<String> {
    let Change::Added { key, member } = change else {
        return None;
    };
    let column = match *key {
        "net" | "allow_net" => Column::Net,
        "write_paths" => Column::Writes,
        "execs" | "allow_exec" => Column::Execs,
        "escapes" => Column::Escapes,
        "reaches" => Column::Reaches,
        _ => return None,
    };
    let mut entries = evidence.entries.iter();
    let entry = entries.find(|it| it.column == column && it.entry == *member)?;
    Some(explain::who(entry).plain())
}
