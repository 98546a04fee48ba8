use super::{
    CommitRules, GitIgnored, MAX_FILES, MAX_NEVER_BYTES, MAX_RULE_BYTES, NEVER_ANYWHERE,
    NEVER_AT_TOP, RuleFile,
};

fn file(directory: &str, text: &str) -> RuleFile {
    RuleFile {
        directory: directory.to_owned(),
        text: text.to_owned(),
    }
}

fn commit(root: &str, files: &[(&str, &str)], never: &[&str]) -> CommitRules {
    CommitRules {
        source: "abc123".to_owned(),
        root: root.to_owned(),
        files: files.iter().map(|&(at, text)| file(at, text)).collect(),
        never: never.iter().map(|&it| it.to_owned()).collect(),
    }
}

fn check(commit: &CommitRules, ignored: &[&str], counted: &[&str]) {
    let rules = GitIgnored::new(commit).expect("rules");
    for entry in ignored {
        assert!(rules.ignores(entry), "{entry} is ignored");
    }
    for entry in counted {
        assert!(!rules.ignores(entry), "{entry} counts");
    }
}

#[test]
fn rules_are_read_as_git_reads_them() {
    check(
        &commit(
            "",
            &[(
                "",
                "# a comment\n*.o\n!keep.o\n/top\nbuild/\ndoc/*.txt\na/**/z\ntrail\\ \n\\#hash\n",
            )],
            &[],
        ),
        &[
            "x.o",
            "d/x.o",
            "top",
            "build/",
            "build/x",
            "d/build/x",
            "doc/a.txt",
            "a/z",
            "a/b/c/z",
            "trail ",
            "#hash",
            "top/below",
        ],
        &[
            "keep.o",
            "d/keep.o",
            "d/top",
            "build",
            "doc/d/a.txt",
            "x.oo",
            "hash",
            ".",
        ],
    );
}

#[test]
fn the_deepest_file_has_the_last_word_but_not_below_an_ignored_directory() {
    check(
        &commit(
            "",
            &[
                ("", "*.log\nout/\n"),
                ("logs", "!kept.log\n"),
                ("out", "!kept\n"),
                ("logs/deep", "kept.log\n"),
            ],
            &[],
        ),
        &["a.log", "logs/a.log", "out/kept", "logs/deep/kept.log"],
        &["logs/kept.log", "logs/x/kept.log"],
    );
}

#[test]
fn a_root_below_the_top_has_the_rules_of_the_top() {
    check(
        &commit(
            "crates/a",
            &[("", "/crates/a/gen\n*.tmp\n/top\n"), ("crates/a", "/own\n")],
            &[],
        ),
        &["gen", "x.tmp", "own"],
        &["crates/a/gen", "top", "d/own"],
    );
}

#[test]
fn nothing_that_decides_what_runs_is_covered() {
    let all = commit("sub", &[("", "*\n")], &["tests/capability.ledger.json"]);
    let rules = GitIgnored::new(&all).expect("rules");
    assert!(rules.ignores("anything"));
    for name in NEVER_ANYWHERE {
        for entry in [name.to_owned(), format!("d/{name}"), format!("{name}/x")] {
            assert!(!rules.ignores(&entry), "{entry}");
        }
    }
    for name in NEVER_AT_TOP {
        assert!(!rules.ignores(name), "{name}");
        assert!(!rules.ignores(&format!("{name}/x")), "{name}");
        assert!(rules.ignores(&format!("d/{name}")), "{name}");
    }
    assert!(!rules.ignores("tests/capability.ledger.json"));
    // Nor what such a name lies in, or may be meant by.
    assert!(!rules.ignores("tests/") && !rules.ignores("tests/*"));
}

#[test]
fn only_names_in_the_root_are_covered() {
    check(
        &commit("", &[("", "*\n")], &[]),
        &["x", "d/*", "*", "d/"],
        &["~/x", "/tmp/x", "memfd:x", "~"],
    );
}

#[test]
fn names_that_cannot_be_told_are_covered_only_with_all_of_their_directory() {
    check(
        &commit("", &[("", "cache/\n*.tmp\n?\n")], &[]),
        &["cache/*", "cache/d/*"],
        &["dd/*", "*"],
    );
}

#[test]
fn hostile_bytes_are_matched_as_bytes() {
    check(
        &commit("", &[("", "*.o\n")], &[]),
        &[r"a\xff.o", r"a\x0ab.o", "é.o"],
        // What imitates another form counts.
        &[r"\x7e/x.o", r"broken\.o"],
    );
}

#[test]
fn what_is_beyond_the_bounds_is_refused() {
    let refused = |rules: &CommitRules, phrase: &str| {
        let error = GitIgnored::new(rules).expect_err(phrase).to_string();
        assert!(error.contains(phrase), "{error}");
    };
    let many = vec![("d", ""); MAX_FILES + 1];
    refused(&commit("", &many, &[]), "more than the 1000");
    let long = "#".repeat(MAX_RULE_BYTES + 1);
    refused(&commit("", &[("", &long)], &[]), "more than the 65536");
    let name = "x".repeat(MAX_NEVER_BYTES + 1);
    refused(&commit("", &[], &[&name]), "more than the 262144");
    refused(
        &commit("", &[("d", "fine\n[z-a]\n")], &[]),
        "line 2 of `d/.gitignore`",
    );
    for directory in ["a//b", "/a", "../a", "a/", r"a\b"] {
        refused(&commit("", &[(directory, "")], &[]), "not the escaped name");
        refused(&commit(directory, &[], &[]), "not the escaped name");
    }
}
