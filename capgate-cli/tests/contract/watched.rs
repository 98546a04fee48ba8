//! What a job must leave alone, and what git's rules cover and do not cover, by the real daemon.

use std::fs;

use crate::project::{Project, serve};

const CONTRACT: &str = "tests/capability.ledger.json";
const EMPTY: &str = r#"{"allow_net": [], "cpu_budget": 30, "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "write_paths": []}"#;

#[test]
fn what_git_ignores_by_the_base_does_not_count_and_nothing_else_is_covered() {
    let service = serve();
    let project = Project::new();
    let ignoring = EMPTY.replace('}', r#", "ignore_gitignored": true}"#);
    project.repository.write(CONTRACT, &ignoring);
    project.repository.write(
        ".gitignore",
        "build/\n*.log\n/tests/capability.actual.json\n.github/\n",
    );
    project.repository.write("kept.log", "tracked\n");
    project.repository.commit("the project");
    let base = ["--base", "main"];
    project
        .run(
            &service,
            &base,
            "mkdir -p build/deep; echo > build/deep/x; echo > a.log",
        )
        .exits(0)
        .says("capgate: match");
    // Everything below is in the rules, and counts all the same.
    for (script, name) in [
        ("echo > kept.log", "kept.log"),
        (
            "mkdir -p .github/workflows; echo > .github/workflows/ci.yml",
            ".github/workflows/ci.yml",
        ),
        ("echo > .gitignore", ".gitignore"),
        ("echo > .git/config.log", ".git/config.log"),
        (
            "echo > tests/capability.actual.json",
            "tests/capability.actual.json",
        ),
    ] {
        project
            .run(&service, &base, script)
            .exits(120)
            .says("capgate: writes (")
            .says(&format!("+ `{name}`"));
        project
            .repository
            .git(&["checkout", "--quiet", "main", "--", "."]);
    }
    // A patch gains nothing by rules of its own.
    project
        .repository
        .git(&["checkout", "--quiet", "-b", "patch"]);
    project.repository.write(".gitignore", "*\n");
    project.repository.commit("wider");
    project
        .run(&service, &base, "echo > new.txt")
        .exits(120)
        .says("+ `new.txt`");
    project.run(&service, &[], "echo > new.txt").exits(0);
    // Rules that covered nothing are told of, like a pattern.
    project
        .run(&service, &base, "true")
        .exits(0)
        .says("ignore_gitignored");
}

#[test]
fn a_job_that_writes_its_contract_never_passes() {
    let service = serve();
    for script in [
        "echo >> tests/capability.ledger.json",
        "cp tests/capability.ledger.json x; mv x tests/capability.ledger.json",
        "git checkout --quiet HEAD^ -- tests/capability.ledger.json",
    ] {
        let project = Project::new();
        project.repository.write(CONTRACT, EMPTY);
        project.repository.commit("older");
        let covering = EMPTY.replace('}', r#", "ignore_writes": ["tests/**", "x", "moved", "tests", ".git/**"], "compare_writes": "within"}"#);
        project.repository.write(CONTRACT, &covering);
        project.repository.commit("the contract");
        for options in [&[][..], &["--base", "main"]] {
            project
                .run(&service, options, script)
                .exits(120)
                .says("escapes")
                .says("the job wrote the contract that it is judged by");
            project
                .repository
                .git(&["checkout", "--quiet", "main", "--", "tests"]);
        }
    }
}

#[test]
fn a_job_that_writes_its_ledger_or_the_repository_is_told_of() {
    let service = serve();
    let project = Project::new();
    project.repository.write(CONTRACT, EMPTY);
    project.repository.commit("the contract");
    for (script, name) in [
        (
            "echo '{}' > tests/capability.actual.json",
            "tests/capability.actual.json",
        ),
        (
            "echo > .git/hooks/post-checkout",
            ".git/hooks/post-checkout",
        ),
        ("git config a.b c", ".git/config"),
    ] {
        project
            .run(&service, &[], script)
            .exits(120)
            .says(&format!("+ `{name}`"));
        // What is left is the client's ledger, and not the job's.
        assert!(project.ledger().recording.write_paths.contains(name));
        assert_eq!(fs::read_dir(project.path("tests")).unwrap().count(), 2);
    }
}
