//! The same scenario must leave the same ledger, byte for byte, wherever it runs.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};

/// Ledgers by scenario, and for each the ledger's text by where it was recorded.
#[derive(Default)]
pub(crate) struct Ledgers(BTreeMap<String, Vec<(String, String)>>);

/// A scenario whose ledger depends on where it is recorded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The scenario.
    pub(crate) scenario: String,
    /// Where it was recorded first, and what that ledger is compared with.
    pub(crate) first: String,
    /// Where it differs, all with the same text.
    pub(crate) others: Vec<String>,
    /// Lines that only one of them has, as in a unified diff.
    pub(crate) lines: String,
}

impl Ledgers {
    /// Adds one ledger.
    fn add(&mut self, scenario: &str, place: &str, text: String) {
        let ledgers = self.0.entry(scenario.to_owned()).or_default();
        ledgers.push((place.to_owned(), text));
    }

    /// Adds each `SCENARIO.json` of a directory, and says how many there were.
    pub(crate) fn add_all(&mut self, place: &str, dir: &Path) -> Result<usize> {
        let failed = || format!("cannot read the ledgers in {}", dir.display());
        let mut count = 0;
        for entry in fs::read_dir(dir).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(scenario) = name.strip_suffix(".json") else {
                continue;
            };
            let text = fs::read(&path).with_context(failed)?;
            self.add(scenario, place, String::from_utf8_lossy(&text).into_owned());
            count += 1;
        }
        Ok(count)
    }

    /// Every difference, by scenario.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (scenario, ledgers) in &self.0 {
            let Some((first, expected)) = ledgers.first() else {
                continue;
            };
            let mut by_text = BTreeMap::<&str, Vec<String>>::new();
            for (place, text) in ledgers {
                if text != expected {
                    by_text.entry(text).or_default().push(place.clone());
                }
            }
            found.extend(by_text.into_iter().map(|(text, others)| Difference {
                scenario: scenario.clone(),
                first: first.clone(),
                others,
                lines: unified(expected, text),
            }));
        }
        found
    }
}

/// The lines that only one of two texts has. Order counts as little as it does in a ledger, whose columns are sorted.
fn unified(first: &str, other: &str) -> String {
    let mut lines = String::new();
    for (mark, text, against) in [('-', first, other), ('+', other, first)] {
        let mut there = BTreeMap::<&str, usize>::new();
        for line in against.lines() {
            *there.entry(line).or_default() += 1;
        }
        for line in text.lines() {
            match there.get_mut(line) {
                Some(count) if *count > 0 => *count -= 1,
                // Writing to a string cannot fail.
                _ => _ = writeln!(lines, "  {mark} {line}"),
            }
        }
    }
    if lines.is_empty() {
        lines = "  the same lines in another order, or other line ends\n".into();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledgers(of: &[(&str, &str, &str)]) -> Ledgers {
        let mut ledgers = Ledgers::default();
        for (scenario, place, text) in of {
            ledgers.add(scenario, place, (*text).to_owned());
        }
        ledgers
    }

    #[test]
    fn equal_ledgers_are_no_difference_and_a_scenario_may_run_in_some_places_only() {
        let same = ledgers(&[
            ("link", "native tracepoint", "a\nb\n"),
            ("link", "x86_64-6.1 fentry", "a\nb\n"),
            ("int80", "native tracepoint", "c\n"),
        ]);
        assert_eq!(same.differences(), []);
    }

    #[test]
    fn a_difference_names_scenario_places_and_lines() {
        let differing = ledgers(&[
            ("link", "native tracepoint", "{\n\"a\"\n\"b\"\n}\n"),
            ("link", "x86_64-6.1 fentry", "{\n\"a\"\n\"c\"\n}\n"),
            ("link", "x86_64-6.12 fentry", "{\n\"a\"\n\"b\"\n}\n"),
            ("link", "arm64-6.12 fentry", "{\n\"a\"\n\"c\"\n}\n"),
        ]);
        assert_eq!(
            differing.differences(),
            [Difference {
                scenario: "link".into(),
                first: "native tracepoint".into(),
                others: vec!["x86_64-6.1 fentry".into(), "arm64-6.12 fentry".into()],
                lines: "  - \"b\"\n  + \"c\"\n".into(),
            }]
        );
    }

    #[test]
    fn a_line_that_is_there_twice_is_not_the_same_as_once() {
        assert_eq!(unified("a\na\n", "a\n"), "  - a\n");
    }

    #[test]
    fn texts_of_the_same_lines_still_differ() {
        let differing = ledgers(&[("x", "one", "a\nb\n"), ("x", "two", "b\na\n")]);
        let found = differing.differences();
        assert_eq!(found.len(), 1);
        assert!(found[0].lines.contains("another order"), "{:?}", found[0]);
    }
}
