//! pytest's marker for a capability of the host, with and without what it names.

use capgate_common::suite::{Counted, Tests};

use crate::{
    absent, packages,
    project::{Project, serve},
    service::{Launch, Service},
};

/// Two tests that need the network, one of them with two parameters, and one that does not.
const TESTS: &str = r#"import pytest

@pytest.mark.capability("network")
@pytest.mark.parametrize("x", [1, 2])
def test_out(x):
    pass

class TestIn:
    @pytest.mark.capability("network")
    def test_in(self):
        pass

def test_pure():
    pass
"#;

const CONTRACT: &str = r#"{
  "allow_net": [],
  "cpu_budget": 30,
  "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  "ignore_writes": ["out.xml"],
  "capabilities": {"network": "a way to the outside"},
  "tests": {"junit": "out.xml", "run_min": 1, "skipped": {"network": 3}}
}"#;

const REGISTRY: &str =
    "count\t2\ntest_out\ttests/test_it.py\tnetwork\nTestIn::test_in\ttests/test_it.py\tnetwork\n";

#[test]
fn marked_tests_are_skipped_where_the_operator_declares_it_and_run_elsewhere() {
    if absent::skip(
        "marked_tests_are_skipped_where_the_operator_declares_it_and_run_elsewhere",
        "pypi",
    )
    .unwrap()
    {
        return;
    }
    let project = Project::new();
    let adapter = project.capgate(&["capability", "adapter", "pytest"]);
    for (name, text) in [
        ("tests/test_it.py", TESTS),
        ("tests/capability.ledger.json", CONTRACT),
        ("tests/host-capabilities.tsv", REGISTRY),
        ("tests/capgate_capability.py", &adapter.stdout),
    ] {
        project.repository.write(name, text);
    }
    project.capgate(&["capability", "check"]).exits(0);
    let script = format!(
        "export CAPGATE={} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests:{}\n\
         /usr/bin/python3 -m pytest -q -p no:cacheprovider -p capgate_capability --junitxml=out.xml tests",
        env!("CARGO_BIN_EXE_capgate"),
        packages::site().display()
    );
    let check = |service: &Service, run: u64, skipped: u64| {
        let sum = format!("ran {run}, skipped {skipped} of 4 (claimed by the job)");
        project.run(service, &[], &script).exits(0).says(&sum);
        let suite = project.ledger().recording.suite;
        let counted = Counted {
            run,
            failed: 0,
            skipped,
        };
        assert_eq!(suite.tests, Some(Tests::Counted(counted)));
        suite.skips
    };
    let without = Service::launch(&Launch {
        config: "absent = [\"network\"]\n",
        ..Launch::default()
    });
    let skips = check(&without, 1, 3);
    let units = [
        "tests/test_it.py::TestIn::test_in",
        "tests/test_it.py::test_out",
    ];
    assert!(skips["network"].iter().eq(units), "{skips:?}");
    assert!(check(&serve(), 4, 0).is_empty());
}
