//! The registry of units that are gated on a capability: a table that a human keeps, with its own length in it.
//!
//!     # unit <TAB> file <TAB> capability
//!     count <TAB> 1
//!     test_images <TAB> tests/images.sh <TAB> docker

use std::collections::BTreeMap;

/// One row, with its line counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Where it stands.
    pub(super) line: usize,
    /// The capability that the unit needs.
    pub(super) capability: String,
}

/// A registry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Registry {
    /// By file and unit.
    pub(super) rows: BTreeMap<(String, String), Row>,
}

/// Reads a registry; what is wrong with it is added to `complaints`, each with its line.
pub(super) fn read(text: &str, complaints: &mut Vec<(usize, String)>) -> Registry {
    let mut registry = Registry::default();
    let mut count = None;
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line));
    for (line, text) in lines {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        match *text.split('\t').collect::<Vec<_>>() {
            ["count", number] if count.is_none() => match number.parse::<usize>() {
                Ok(number) => count = Some((line, number)),
                Err(_) => complaints.push((line, format!("`{number}` is no count"))),
            },
            ["count", _] => complaints.push((line, "the count is there twice".to_owned())),
            [unit, file, capability]
                if ![unit, file, capability]
                    .iter()
                    .any(|cell| cell.trim().is_empty()) =>
            {
                let row = Row {
                    line,
                    capability: capability.to_owned(),
                };
                let key = (file.to_owned(), unit.to_owned());
                if let Some(first) = registry.rows.get(&key) {
                    let first = first.line;
                    complaints.push((
                        line,
                        format!(
                            "{unit} of {file} is declared a second time, first in line {first}"
                        ),
                    ));
                } else {
                    registry.rows.insert(key, row);
                }
            }
            _ => complaints.push((
                line,
                "a row has a unit, its file and a capability, with tabs between".to_owned(),
            )),
        }
    }
    let declared = registry.rows.len();
    match count {
        Some((_, number)) if number == declared => {}
        Some((line, number)) => complaints.push((
            line,
            format!("the count is {number}, and {declared} units are declared"),
        )),
        None => complaints.push((
            1,
            format!("there is no count: {declared} units are declared, write `count`, a tab and the number"),
        )),
    }
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[(usize, &str)]) {
        let mut complaints = Vec::new();
        read(text, &mut complaints);
        let got: Vec<(usize, &str)> = complaints
            .iter()
            .map(|(line, what)| (*line, what.as_str()))
            .collect();
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn a_registry_knows_its_length() {
        check("# units\ncount\t1\n\ntest_a\ttests/a.sh\tdocker\n", &[]);
        check(
            "count\t2\ntest_a\ttests/a.sh\tdocker\n",
            &[(1, "the count is 2, and 1 units are declared")],
        );
        check("count\t0\ncount\t0\n", &[(2, "the count is there twice")]);
        check(
            "count\tmany\n",
            &[
                (1, "`many` is no count"),
                (
                    1,
                    "there is no count: 0 units are declared, write `count`, a tab and the number",
                ),
            ],
        );
    }

    #[test]
    fn a_row_is_whole_and_there_once() {
        let form = "a row has a unit, its file and a capability, with tabs between";
        check("count\t0\ntest_a tests/a.sh docker\n", &[(2, form)]);
        check("count\t0\ntest_a\t\tdocker\n", &[(2, form)]);
        check(
            "count\t1\ntest_a\ta.sh\tdocker\ntest_a\ta.sh\tipv6\n",
            &[(
                3,
                "test_a of a.sh is declared a second time, first in line 2",
            )],
        );
    }
}
