//! `capgate capability check`: every way in which a suite's gates can leave its registry is told in one sentence.

use std::fs;

use crate::stand::{EMPTY, bare, output, text};

const REGISTRY: &str = "tests/host-capabilities.tsv";
const SHELL: &str = ". tests/capability.sh\ncapability_require docker test_a || exit\ntrue\n";
const PYTHON: &str =
    "import pytest\n\n@pytest.mark.capability(\"network\")\ndef test_b():\n    pass\n";

/// A repository with two gated units, as they are declared.
struct Suite(tempfile::TempDir);

impl Suite {
    fn new() -> Self {
        let suite = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(suite.0.path().join("tests/deep")).unwrap();
        let table = r#", "capabilities": {"docker": "a docker daemon", "network": "a way out"}}"#;
        suite.put("tests/capability.ledger.json", &EMPTY.replace('}', table));
        suite.put(
            REGISTRY,
            "# unit\tfile\tcapability\ncount\t2\ntest_a\ttests/a.sh\tdocker\ntest_b\ttests/deep/b.py\tnetwork\n",
        );
        suite.put("tests/a.sh", SHELL);
        suite.put("tests/deep/b.py", PYTHON);
        suite.put("tests/README.md", "capability_require docker test_z\n");
        for (adapter, file) in [
            ("shell", "tests/capability.sh"),
            ("pytest", "tests/capgate_capability.py"),
        ] {
            let shipped = output(bare().args(["capability", "adapter", adapter]));
            suite.put(file, &text(&shipped.stdout));
        }
        suite
    }

    fn put(&self, name: &str, contents: &str) {
        fs::write(self.0.path().join(name), contents).unwrap();
    }

    fn change(&self, name: &str, from: &str, to: &str) {
        let path = self.0.path().join(name);
        let before = fs::read_to_string(&path).unwrap();
        assert!(before.contains(from), "{before}");
        fs::write(path, before.replace(from, to)).unwrap();
    }

    /// The exit code and what is said.
    fn check(&self) -> (Option<i32>, String) {
        let mut capgate = bare();
        capgate.current_dir(self.0.path());
        let done = output(capgate.args(["capability", "check", "--root", "."]));
        (
            done.status.code(),
            format!("{}{}", text(&done.stdout), text(&done.stderr)),
        )
    }
}

/// A suite with one thing changed is red with exactly these sentences.
fn red(change: impl FnOnce(&Suite), sentences: &[&str]) {
    let suite = Suite::new();
    change(&suite);
    let (code, said) = suite.check();
    assert_eq!(said.lines().collect::<Vec<_>>(), sentences);
    assert_eq!(code, Some(1));
}

#[test]
fn a_suite_that_gates_what_it_declares_is_green() {
    let (code, said) = Suite::new().check();
    assert_eq!(
        said,
        "2 units are gated, as tests/host-capabilities.tsv declares\n"
    );
    assert_eq!(code, Some(0));
}

#[test]
fn a_unit_that_is_gated_without_being_declared_is_red() {
    red(
        |suite| suite.put("tests/c.sh", "capability_require docker test_c\n"),
        &[
            "tests/c.sh:1: test_c is gated on docker without being declared in tests/host-capabilities.tsv",
        ],
    );
}

#[test]
fn a_unit_that_is_declared_without_being_gated_is_red() {
    red(
        |suite| suite.change("tests/a.sh", "capability_require", "# capability_require"),
        &[
            "tests/host-capabilities.tsv:3: test_a is declared to need docker, and tests/a.sh does not gate it",
        ],
    );
    red(
        |suite| fs::remove_file(suite.0.path().join("tests/a.sh")).unwrap(),
        &[
            "tests/host-capabilities.tsv:3: test_a is declared to be in tests/a.sh, which is no file that was searched",
        ],
    );
}

#[test]
fn an_unknown_capability_is_red() {
    let unknown =
        "no capability is called `podman`; the contract's `capabilities` has docker, network";
    red(
        |suite| {
            suite.change("tests/a.sh", "docker", "podman");
            suite.change(REGISTRY, "docker", "podman");
        },
        &[
            &format!("tests/host-capabilities.tsv:3: {unknown}"),
            &format!("tests/a.sh:2: {unknown}"),
        ],
    );
}

#[test]
fn another_capability_than_the_declared_one_is_red() {
    red(
        |suite| suite.change("tests/a.sh", "docker", "network"),
        &[
            "tests/a.sh:2: test_a is gated on network, and line 3 of tests/host-capabilities.tsv declares docker",
        ],
    );
}

#[test]
fn a_wrong_count_is_red() {
    red(
        |suite| suite.change(REGISTRY, "count\t2", "count\t3"),
        &["tests/host-capabilities.tsv:2: the count is 3, and 2 units are declared"],
    );
}

#[test]
fn a_unit_that_is_gated_twice_is_red() {
    red(
        |suite| suite.change("tests/a.sh", "true", "capability_require docker test_a"),
        &["tests/a.sh:3: test_a is gated a second time, first in line 2"],
    );
}

#[test]
fn a_changed_call_shape_is_red() {
    let form = "this does not gate a unit in a form that can be checked: the unit and the capability have to be written out";
    let undeclared = "test_a is declared to need docker, and tests/a.sh does not gate it";
    red(
        |suite| suite.change("tests/a.sh", "docker test_a", "docker \"$UNIT\""),
        &[
            &format!("tests/host-capabilities.tsv:3: {undeclared}"),
            &format!("tests/a.sh:2: {form}"),
        ],
    );
    // An adapter that is not the shipped one any more is a call like any other.
    red(
        |suite| suite.change("tests/capability.sh", "|| exit", "|| true"),
        &[
            &format!("tests/capability.sh:7: {form}"),
            &format!("tests/capability.sh:8: {form}"),
        ],
    );
}

#[test]
fn without_a_registry_or_a_contract_nobody_can_tell() {
    for (gone, phrase) in [
        (REGISTRY, "cannot read the registry"),
        ("tests/capability.ledger.json", "there is no contract at"),
    ] {
        let suite = Suite::new();
        fs::remove_file(suite.0.path().join(gone)).unwrap();
        let (code, said) = suite.check();
        assert_eq!(code, Some(125));
        assert!(said.contains(phrase), "{said}");
    }
}
