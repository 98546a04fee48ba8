//! How many tests passed, failed and were skipped, summed over test binaries.

use std::fmt;

/// Sums of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran and passed.
    pub(crate) passed: usize,
    /// Tests that ran and failed, and test binaries that did not get to their summary.
    pub(crate) failed: usize,
    /// Tests that did not run.
    pub(crate) skipped: usize,
}

impl Tally {
    /// Adds what a line of a test binary's output says: its summary counts, other lines do not.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(summary) = line.strip_prefix("test result: ") else {
            return;
        };
        // "ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s"
        let words: Vec<_> = summary
            .split([' ', ';'])
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let &[count, what] = pair else { continue };
            let Ok(count) = count.parse::<usize>() else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }

    /// Adds the sums of other tests.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Takes tests that returned without doing their work, and so were reported as passed, for what they are.
    pub(crate) fn reclassify_skipped(&mut self, count: usize) {
        self.passed = self.passed.saturating_sub(count);
        self.skipped += count;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, expect: &str) {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.add_line(line));
        assert_eq!(tally.to_string(), expect);
    }

    #[test]
    fn summaries_of_all_binaries_add_up() {
        check(
            "running 2 tests\n\
             test a ... ok\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 3 passed; 4 failed; 1 ignored; 0 measured; 9 filtered out; finished in 12.50s\n",
            "5 passed, 4 failed, 1 skipped",
        );
    }

    #[test]
    fn a_tests_own_words_do_not_count() {
        check(
            "test test_result: 5 passed ... ok\n7 passed; 1 failed\n",
            "0 passed, 0 failed, 0 skipped",
        );
    }

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let mut tally = Tally {
            passed: 3,
            failed: 1,
            skipped: 0,
        };
        tally.reclassify_skipped(2);
        assert_eq!(
            tally,
            Tally {
                passed: 1,
                failed: 1,
                skipped: 2
            }
        );
    }
}
