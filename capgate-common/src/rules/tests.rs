use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Rules, tokens};
use crate::{
    contract::{Contract, ContractError},
    gitignored::{CommitRules, RuleFile},
    ledger::EMPTY_DIGEST,
    pathform::Forms,
};

fn contract(key: &str, value: &Value) -> Contract {
    let mut contract = json!({ "allow_net": [], "cpu_budget": 30, "writes": EMPTY_DIGEST });
    contract[key] = value.clone();
    Contract::from_json(contract.to_string().as_bytes()).expect("a contract")
}

fn rules(key: &str, value: &Value, environment: &[(&str, &str)]) -> Result<Rules, ContractError> {
    let forms = Forms::new(b"/home/u/work/repo", Some(b"/home/u"), 1000).expect("a root");
    let environment: BTreeMap<String, String> = environment
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Rules::new(contract(key, value), &environment, &forms, None)
}

fn check(pattern: &str, environment: &[(&str, &str)], ignored: &[&str], counted: &[&str]) {
    let rules = rules("ignore_writes", &json!([pattern]), environment).expect(pattern);
    for entry in ignored {
        assert!(rules.ignores(entry), "{pattern} covers {entry}");
    }
    for entry in counted {
        assert!(!rules.ignores(entry), "{pattern} does not cover {entry}");
    }
}

fn refuse(key: &str, pattern: &str, environment: &[(&str, &str)], phrase: &str) {
    let error = rules(key, &json!(["fine/x", pattern]), environment)
        .expect_err(pattern)
        .to_string();
    assert!(
        error.starts_with(&format!("the contract's `{key}`[1]: ")),
        "{error}"
    );
    assert!(error.contains(phrase), "{error}\nhas not: {phrase}");
}

#[test]
fn a_token_is_the_directory_of_the_variable_in_entry_form() {
    check(
        "$TMPDIR/**",
        &[("TMPDIR", "/tmp/x//")],
        &["/tmp/x/a", "/tmp/x/a/b"],
        &["/tmp/y", "tmp/x/a"],
    );
    check(
        "$TMPDIR/**",
        &[("TMPDIR", "/home/u/tmp")],
        &["~/tmp/a"],
        &["/home/u/tmp/a"],
    );
    check(
        "$TMPDIR/**",
        &[("TMPDIR", "/home/u/work/repo/t")],
        &["t/a"],
        &["a"],
    );
    check(
        "$XDG_RUNTIME_DIR/**",
        &[("XDG_RUNTIME_DIR", "/run/user/1000")],
        &["/run/user/$UID/a"],
        &[],
    );
    check(
        "$RUNNER_TEMP",
        &[("RUNNER_TEMP", "/srv/t")],
        &["/srv/t", "/srv/t/"],
        &["/srv/t/a"],
    );
}

#[test]
fn the_value_of_a_token_is_no_glob() {
    check(
        "$TMPDIR/*",
        &[("TMPDIR", "/tmp/[a]*")],
        &["/tmp/[a]*/x"],
        &["/tmp/ab/x"],
    );
    check(
        "$TMPDIR/*",
        &[("TMPDIR", r"/tmp/a\b")],
        &[r"/tmp/a\\b/x"],
        &[r"/tmp/a\b/x"],
    );
}

#[test]
fn a_dollar_elsewhere_is_an_ordinary_character() {
    check("a$b/$c", &[], &["a$b/$c"], &[]);
    check("[$]x", &[], &["$x"], &[]);
    check(
        "/run/user/$UID/*",
        &[],
        &["/run/user/$UID/x"],
        &["/run/user/1000/x"],
    );
}

#[test]
fn a_variable_that_is_not_set_is_named() {
    refuse(
        "ignore_writes",
        "$TMPDIR/**",
        &[],
        "the environment variable `TMPDIR` is not set, in `$TMPDIR/**`",
    );
    refuse(
        "scratch",
        "$TMPDIR",
        &[("TMPDIR", "")],
        "`TMPDIR` is not set",
    );
    refuse(
        "allow_exec",
        "$HOME/bin/*",
        &[("TMPDIR", "/tmp")],
        "`HOME` is not set",
    );
}

#[test]
fn a_token_that_holds_the_root_is_refused() {
    for value in [
        "/home/u/work/repo",
        "/home/u/work/repo/",
        "/home/u",
        "/home",
        "/",
        "//",
    ] {
        refuse(
            "ignore_writes",
            "$HOME/.cache/**",
            &[("HOME", value)],
            "which holds the job's root directory",
        );
    }
}

#[test]
fn a_token_that_is_no_plain_absolute_path_is_refused() {
    for value in [
        "tmp",
        "./tmp",
        "/tmp/../home/u/work/repo",
        "/tmp/./x",
        "~",
        "/tmp//x",
    ] {
        refuse(
            "scratch",
            "$TMPDIR/a",
            &[("TMPDIR", value)],
            "not an absolute path",
        );
    }
}

#[test]
fn a_token_that_is_all_of_the_home_is_refused() {
    let forms = Forms::new(b"/srv/repo", Some(b"/home/u"), 1000).expect("a root");
    let environment = BTreeMap::from([("TMPDIR".to_owned(), "/home/u".to_owned())]);
    let contract = contract("scratch", &json!(["$TMPDIR"]));
    let error = Rules::new(contract, &environment, &forms, None).expect_err("the home");
    assert!(error.to_string().contains("matches everything"), "{error}");
}

#[test]
fn a_token_needs_a_name() {
    for pattern in ["$", "$/x", "${TMPDIR}/x", "$TMP-DIR/x", "$a b"] {
        refuse(
            "ignore_writes",
            pattern,
            &[("TMPDIR", "/tmp")],
            "a name such as `$TMPDIR` is expected",
        );
    }
}

#[test]
fn a_bad_glob_is_named_with_its_key() {
    refuse(
        "ignore_writes",
        "**",
        &[],
        "this matches everything; name a directory or a part of the name, in `**`",
    );
    refuse("scratch", "~", &[], "this matches everything");
    refuse("allow_exec", "/usr/[", &[], "unclosed character class");
    let error = rules("allow_net", &json!(["192.0.2.1:1", "unix:@*"]), &[]).expect_err("all");
    assert_eq!(
        error.to_string(),
        "the contract's `allow_net`[1]: this matches everything; name a directory or a part of the name, in `unix:@*`"
    );
}

#[test]
fn scratch_covers_a_directory_with_all_below() {
    let rules = rules("scratch", &json!(["~/.cache/pip"]), &[]).expect("rules");
    for entry in ["~/.cache/pip", "~/.cache/pip/", "~/.cache/pip/a/b"] {
        assert!(rules.ignores(entry), "{entry}");
        assert!(rules.scratch().matches(entry), "{entry}");
    }
    assert!(!rules.ignores("~/.cache/other"));
}

#[test]
fn the_variables_that_a_contract_needs_are_told() {
    let mut contract = contract("ignore_writes", &json!(["$TMPDIR/**", "a/$b", "$A"]));
    contract.scratch = vec!["$B/x".to_owned()];
    contract.allow_exec = Some(vec!["$C/bin".to_owned(), "$TMPDIR/x".to_owned()]);
    assert_eq!(
        tokens(&contract).into_iter().collect::<Vec<_>>(),
        ["A", "B", "C", "TMPDIR"]
    );
}

#[test]
fn what_git_ignores_needs_the_rules_of_a_commit() {
    let forms = Forms::new(b"/repo", None, 1000).expect("a root");
    let make = |commit: Option<&CommitRules>| {
        let contract = contract("ignore_gitignored", &json!(true));
        Rules::new(contract, &BTreeMap::new(), &forms, commit)
    };
    let error = make(None).expect_err("no rules").to_string();
    assert!(
        error.contains("`ignore_gitignored`: the rules of the base commit are needed"),
        "{error}"
    );
    let mut commit = CommitRules {
        source: "main".to_owned(),
        files: vec![RuleFile {
            directory: String::new(),
            text: "*.o\n".to_owned(),
        }],
        ..CommitRules::default()
    };
    let rules = make(Some(&commit)).expect("rules");
    assert!(rules.ignores("d/x.o") && !rules.ignores("x") && !rules.ignores("~/x.o"));
    commit.files[0].text = "[z-a]\n".to_owned();
    let error = make(Some(&commit)).expect_err("a bad line").to_string();
    assert!(
        error.contains("line 1 of `.gitignore`") && error.contains("at main"),
        "{error}"
    );
    // Without the key the rules have no say.
    let rules = Rules::new(
        contract("ignore_gitignored", &json!(false)),
        &BTreeMap::new(),
        &forms,
        Some(&commit),
    );
    assert!(!rules.expect("rules").ignores("x.o"));
}
