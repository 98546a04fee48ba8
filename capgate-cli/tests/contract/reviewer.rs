//! A reviewer's path, as a new user would go it.

use std::fs;

use capgate_common::evidence::Column;

use crate::project::{PYTHON, Project, serve};

/// A small project: a program, its test, and a build of a data file.
fn project() -> Project {
    let project = Project::new();
    project.repository.write(
        "words.py",
        "import json\n\
         def count(text):\n    return len(text.split())\n\
         def report(text, path):\n    with open(path, 'w') as out:\n        json.dump({'words': count(text)}, out)\n",
    );
    project.repository.write(
        "tests/test_words.py",
        "import os, unittest, words\n\
         class Words(unittest.TestCase):\n\
         \x20   def test_count(self):\n        self.assertEqual(words.count('a b c'), 3)\n\
         \x20   def test_report(self):\n        os.makedirs('out', exist_ok=True)\n        words.report('a b', 'out/report.json')\n",
    );
    project.repository.commit("the project");
    project
}

/// A patch whose tests pass: it keeps a cache, and asks a server.
const PATCH: &str = "import json, os, socket\n\
     def count(text):\n    os.makedirs('.cache', exist_ok=True)\n    with open('.cache/words', 'w') as out:\n        out.write(text)\n\
     \x20   return len(text.split())\n\
     def report(text, path):\n    try:\n        socket.create_connection(('127.0.0.1', 9), 1).close()\n    except OSError:\n        pass\n\
     \x20   with open(path, 'w') as out:\n        json.dump({'words': count(text)}, out)\n";

#[test]
fn a_patch_breaks_the_gate_and_only_what_was_accepted_passes() {
    let service = serve();
    let project = project();
    let suite = format!("{PYTHON} -m unittest -q tests.test_words");

    // The owner seeds the contract, and commits it.
    project
        .init(&service, &["--runs", "2"], &suite)
        .exits(0)
        .says("from 2 runs")
        .says("`**/__pycache__/**`")
        .says("added `/tests/capability.actual.json`");
    let contract = project.contract();
    assert_eq!(
        contract
            .write_paths
            .as_ref()
            .unwrap()
            .iter()
            .collect::<Vec<_>>(),
        ["out/report.json"]
    );
    fs::write(
        project.path(".gitignore"),
        "/tests/capability.actual.json\n/out/\n__pycache__/\n",
    )
    .unwrap();
    project
        .repository
        .git(&["add", ".gitignore", "tests/capability.ledger.json"]);
    project
        .repository
        .git(&["commit", "--quiet", "-m", "the contract"]);
    project
        .run(&service, &["--base", "main"], &suite)
        .exits(0)
        .says("capgate: match");

    // Somebody sends the patch, with a contract that allows what it does.
    project
        .repository
        .git(&["checkout", "--quiet", "-b", "patch"]);
    project.repository.write("words.py", PATCH);
    let wide = project
        .contract_text()
        .replace("\"allow_net\": []", "\"allow_net\": [\"127.0.0.1:9\"]");
    project
        .repository
        .write("tests/capability.ledger.json", &wide);
    let gate = ["--base", "main", "--evidence", "evidence.json"];
    project
        .run(&service, &gate, &suite)
        .exits(120)
        .says("capgate: net, also: writes")
        .says("+ `127.0.0.1:9`")
        .says("+ `.cache/words`")
        .says("unittest -q tests.test_words")
        .says("proposal: the work tree's own contract says something else")
        .says("+ allow_net: `127.0.0.1:9`")
        .leaves_out("out/report.json");
    let evidence = project.evidence("evidence.json");
    assert!(evidence.entries.iter().any(|it| it.column == Column::Net));

    // The reviewer reads the difference, and accepts the file but not the download.
    project.repository.git(&[
        "checkout",
        "--quiet",
        "main",
        "--",
        "tests/capability.ledger.json",
    ]);
    let contract = "tests/capability.ledger.json";
    let ledger = "tests/capability.actual.json";
    project
        .capgate(&["diff", contract, ledger, "--evidence", "evidence.json"])
        .exits(1)
        .says("+ net: `127.0.0.1:9`\n")
        .says("+ write_paths: `.cache/words`\n    by ");
    let before = project.contract_text();
    project
        .capgate(&[
            "accept",
            ledger,
            "--write",
            ".cache/words",
            "--evidence",
            "evidence.json",
        ])
        .exits(0)
        .says("+ write_paths: `.cache/words`\n    by ")
        .leaves_out("127.0.0.1");
    let after = project.contract_text();
    let changed: Vec<(&str, &str)> = before
        .lines()
        .zip(after.lines().filter(|line| !line.contains(".cache/words")))
        .filter(|(one, other)| one != other)
        .collect();
    assert_eq!(changed.len(), 1, "the digest alone: {changed:?}");

    // Merged into the base, the file is fine and the download is not.
    project
        .repository
        .git(&["checkout", "--quiet", "main", "--", "words.py"]);
    project.repository.git(&["stash", "--quiet"]);
    project.repository.git(&["checkout", "--quiet", "main"]);
    project.repository.git(&["stash", "pop", "--quiet"]);
    project
        .repository
        .git(&["commit", "--quiet", "-am", "accept the cache"]);
    project.repository.write("words.py", PATCH);
    project
        .run(&service, &["--base", "main"], &suite)
        .exits(120)
        .says("capgate: net (")
        .says("+ `127.0.0.1:9`")
        .leaves_out(".cache/words");
    // And without the download it passes.
    let quiet = PATCH.replace(
        "socket.create_connection(('127.0.0.1', 9), 1).close()",
        "pass",
    );
    project.repository.write("words.py", &quiet);
    project
        .run(&service, &["--base", "main"], &suite)
        .exits(0)
        .says("capgate: match");
}
