//! What a machine's console says: one part for each probe set, and in it the verdict.

use crate::tally::Tally;

/// What begins a line of the machine's own init; all others are of the suite or the kernel.
const OURS: &str = "capgate-vm: ";

/// Lines shown of a console that does not say what it should.
const TAIL: usize = 40;

/// What the suite did with one probe set.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// How many scenarios passed and failed.
    pub(crate) tally: Tally,
    /// What an operator needs to see, when it is not as it should be.
    pub(crate) problem: Option<String>,
}

impl Verdict {
    /// Makes this a failure, for one more reason.
    pub(crate) fn fails(&mut self, reason: String) {
        self.tally.failed = self.tally.failed.max(1);
        self.problem = Some(match self.problem.take() {
            Some(earlier) => format!("{earlier}\nand {reason}"),
            None => reason,
        });
    }
}

/// The verdict of one probe set. Without a clear one it is a failure.
pub(crate) fn verdict(console: &str, set: &str) -> Verdict {
    let Some((output, status)) = part(console, set) else {
        let mut verdict = Verdict::default();
        verdict.fails(format!(
            "no verdict; its console ends with\n{}",
            tail(console)
        ));
        return verdict;
    };
    judge(output, status.parse().ok())
}

/// The verdict of a suite that printed this and ended with this code, or with none. Whatever is not a clear success is a failure.
pub(crate) fn judge(output: &str, code: Option<i32>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut summaries = 0;
    for line in output.lines() {
        summaries += usize::from(line.starts_with("test result: "));
        verdict.tally.add_line(line);
    }
    let tally = verdict.tally;
    let code = code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    let wrong = if summaries != 1 {
        format!("the suite printed {summaries} summaries and ended with {code}")
    } else if tally.failed > 0 && code == "0" {
        "the suite ended with 0 although something failed".to_owned()
    } else if tally.failed > 0 {
        verdict.fails(failures(output).to_owned());
        return verdict;
    } else if code != "0" {
        format!("the suite ended with {code} although nothing failed")
    } else if tally.passed == 0 {
        "nothing passed".to_owned()
    } else {
        return verdict;
    };
    verdict.fails(format!("{wrong}; its output ends with\n{}", tail(output)));
    verdict
}

/// The suite's output for a probe set, and the status with which it ended.
fn part<'a>(console: &'a str, set: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = console.split_once(&format!("{OURS}begin {set}\n"))?;
    let (output, rest) = rest.split_once(&format!("{OURS}end {set} "))?;
    let (status, _) = rest.split_once('\n')?;
    Some((output, status))
}

/// What a suite says about failures: its details and the list, which begin with a line `failures:`.
fn failures(output: &str) -> &str {
    match output.find("\nfailures:\n") {
        Some(start) => output.get(start + 1..).unwrap_or(output),
        None => output,
    }
}

/// The last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    let all: Vec<_> = text.lines().collect();
    all.get(all.len().saturating_sub(TAIL)..)
        .unwrap_or_default()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n";
    const FAILED: &str = "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n";

    /// A console on which the suite printed this for one set and ended with this status.
    fn console(output: &str, status: &str) -> String {
        format!(
            "[    0.1] boot\ncapgate-vm: begin fentry\n{output}capgate-vm: end fentry {status}\n[    9.1] reboot: Power down\n"
        )
    }

    fn check(console: &str, passed: usize, failed: usize, problem: Option<&str>) {
        let verdict = verdict(console, "fentry");
        assert_eq!(
            (verdict.tally.passed, verdict.tally.failed),
            (passed, failed),
            "{verdict:?}"
        );
        match (&verdict.problem, problem) {
            (None, None) => {}
            (Some(said), Some(problem)) => assert!(said.contains(problem), "{said}"),
            _ => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn a_suite_that_passed_has_a_summary_and_status_0() {
        check(&console(PASSED, "0"), 3, 0, None);
        let both = format!(
            "capgate-vm: begin tracepoint\n{FAILED}capgate-vm: end tracepoint 101\n{}",
            console(PASSED, "0")
        );
        check(&both, 3, 0, None);
    }

    #[test]
    fn a_failure_is_shown_with_its_details() {
        let output = format!(
            "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b ----\nleft: 1\n{FAILED}"
        );
        check(&console(&output, "101"), 2, 1, Some("---- b ----\nleft: 1"));
        let shown = verdict(&console(&output, "101"), "fentry").problem;
        assert!(!shown.unwrap_or_default().contains("test a ... ok"));
    }

    #[test]
    fn whatever_else_happens_is_a_failure() {
        for (output, status, problem) in [
            ("", "0", "printed 0 summaries"),
            ("killed\n", "137", "printed 0 summaries"),
            (&format!("{PASSED}{PASSED}"), "0", "printed 2 summaries"),
        ] {
            let verdict = verdict(&console(output, status), "fentry");
            assert!(verdict.tally.failed > 0, "{verdict:?}");
            assert!(verdict.problem.unwrap_or_default().contains(problem));
        }
        check(&console(PASSED, "1"), 3, 1, Some("ended with 1 although"));
        check(&console(FAILED, "0"), 2, 1, Some("ended with 0 although"));
        let nothing = PASSED.replace('3', "0");
        check(&console(&nothing, "0"), 0, 1, Some("nothing passed"));
    }

    #[test]
    fn a_machine_without_a_verdict_shows_the_end_of_its_console() {
        let begun = "capgate-vm: begin fentry\ntest a ... ok\nKernel panic - not syncing\n";
        check(begun, 0, 1, Some("Kernel panic"));
        check("", 0, 1, Some("no verdict"));
        let other = console(PASSED, "0").replace("fentry", "tracepoint");
        check(&other, 0, 1, Some("no verdict"));
    }
}
