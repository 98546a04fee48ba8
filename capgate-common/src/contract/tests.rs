use serde_json::{Value, json};

use super::{
    CompareWrites, Contract, KEYS, MAX_BYTES, MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_WILDCARD_BYTES,
    REQUIRED_KEYS,
};
use crate::ledger::EMPTY_DIGEST;

/// `printf 'a\nb' | sha256sum`.
const A_AND_B: &str = "7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78";

fn with(key: &str, value: &Value) -> String {
    let mut contract = json!({ "allow_net": [], "cpu_budget": 30, "writes": EMPTY_DIGEST });
    contract[key] = value.clone();
    contract.to_string()
}

fn read(json: &str) -> Contract {
    Contract::from_json(json.as_bytes()).expect(json)
}

fn refuse(json: &str, phrase: &str) {
    let error = Contract::from_json(json.as_bytes())
        .expect_err(json)
        .to_string();
    assert!(error.contains(phrase), "{error}\nhas not: {phrase}");
    assert!(!error.contains(char::is_control), "{error:?} is one line");
}

#[test]
fn the_contract_of_the_in_process_harness_is_accepted_unchanged() {
    let contract = read(&format!(
        r#"{{"allow_net": [], "cpu_budget": 30, "writes": "{A_AND_B}"}}"#
    ));
    assert_eq!(contract.cpu_budget, 30);
    assert_eq!(contract.writes, A_AND_B);
    assert_eq!(contract.compare_writes, CompareWrites::Exact);
    assert!(contract.allow_net.is_empty() && contract.write_paths.is_none());
    assert!(contract.allow_exec.is_none() && contract.allow_unseen.is_empty());
    assert!(!contract.require_race_free && !contract.enforce);
    assert!(!contract.refuse_shims);
    assert!(contract.seal_env.is_empty() && contract.refuse.is_empty());
}

#[test]
fn what_is_sealed_and_refused_is_checked_one_by_one() {
    let contract = read(&with("seal_env", &json!(["AWS_*", "KUBECONFIG"])));
    assert!(contract.seal_env[0].matches(b"AWS_PROFILE"));
    refuse(
        &with("seal_env", &json!(["A", "P*"])),
        "the contract's `seal_env`[1]: `P*` would drop `PATH`",
    );
    refuse(
        &with("seal_env", &json!(["*"])),
        "the contract's `seal_env`[0]: `*` would drop the whole environment",
    );
    refuse(&with("seal_env", &json!("A")), "a list of strings");
    let contract = read(&with("refuse", &json!(["exec:az", "net:192.0.2.1:*"])));
    assert_eq!(contract.refuse[1].text(), "net:192.0.2.1:*");
    refuse(
        &with("refuse", &json!(["exec:az", "az"])),
        "the contract's `refuse`[1]: `exec:`, `net:`, `unix:` or `write:`",
    );
    refuse(
        &with("refuse_shims", &json!(true)),
        "the contract's `refuse_shims`: it needs a program by its name in `refuse`",
    );
}

#[test]
fn every_key_is_read() {
    let contract = read(
        &json!({
            "schema": "capgate/contract/1",
            "allow_net": ["127.0.0.1:5432", "*.example.org:443"],
            "cpu_budget": 0,
            "writes": A_AND_B,
            "write_paths": ["b", "a"],
            "compare_writes": "within",
            "ignore_writes": ["**/__pycache__/**", "$TMPDIR/**"],
            "ignore_gitignored": false,
            "scratch": ["~/.cache/pip"],
            "allow_exec": ["/usr/bin/*"],
            "allow_unseen": ["docker", "io_uring"],
            "require_race_free": true,
            "enforce": true,
            "capabilities": {"docker": "a docker daemon", "ipv6": "IPv6"},
            "requires": ["ipv6"],
            "tests": {"junit": "build/out.xml", "run_min": 110, "skipped": {"docker": 33}}
        })
        .to_string(),
    );
    assert_eq!(contract.allow_net.len(), 2);
    assert_eq!(contract.write_paths.map(|paths| paths.len()), Some(2));
    assert_eq!(contract.compare_writes, CompareWrites::Within);
    assert_eq!(contract.ignore_writes.len(), 2);
    assert_eq!(contract.scratch, ["~/.cache/pip"]);
    assert_eq!(
        contract.allow_exec.as_deref(),
        Some(&["/usr/bin/*".to_owned()][..])
    );
    assert_eq!(contract.allow_unseen.len(), 2);
    assert!(contract.require_race_free && contract.enforce);
    assert_eq!(contract.capabilities.map(|table| table.len()), Some(2));
    assert!(contract.requires.iter().eq(["ipv6"]));
    let pins = contract.tests.expect("pins");
    assert_eq!((&*pins.junit, pins.run_min), ("build/out.xml", 110));
    assert_eq!(pins.skipped.to_string(), "docker: 33");
}

#[test]
fn names_that_are_used_are_names_of_the_table() {
    let table = json!({"docker": "a docker daemon"});
    for (key, value) in [
        ("requires", json!(["ipv6"])),
        (
            "tests",
            json!({"junit": "out.xml", "run_min": 0, "skipped": {"ipv6": 1}}),
        ),
    ] {
        let mut contract: Value = serde_json::from_str(&with(key, &value)).expect("JSON");
        let unknown =
            format!("`{key}`: no capability is called `ipv6`; the contract's `capabilities` has");
        refuse(&contract.to_string(), &format!("{unknown} none"));
        contract["capabilities"] = table.clone();
        refuse(&contract.to_string(), &format!("{unknown} docker"));
    }
}

#[test]
fn a_table_has_names_and_meanings_of_one_line() {
    for (table, phrase) in [
        (json!({"Docker": "x"}), "`Docker` is no name"),
        (json!({"docker": ""}), "`docker` needs its meaning"),
        (json!({"docker": "a\nb"}), "`docker` needs its meaning"),
        (json!({"docker": 1}), "`docker` needs its meaning"),
    ] {
        refuse(&with("capabilities", &table), phrase);
    }
    let twice = with("capabilities", &json!({"a": "x"})).replace("{\"a\"", r#"{"a":"y","a""#);
    refuse(&twice, "the key `a` is there twice");
    // The whole chain is shown, and says it once.
    let error = Contract::from_json(twice.as_bytes()).expect_err("twice");
    assert!(std::error::Error::source(&error).is_none(), "{error}");
}

#[test]
fn the_file_of_results_lies_in_the_root() {
    let pins = |junit: &str| json!({"junit": junit, "run_min": 1, "skipped": 0});
    for junit in [
        "",
        "/tmp/out.xml",
        "../out.xml",
        "a/../out.xml",
        "./out.xml",
        "a//b",
        "a\nb",
    ] {
        refuse(&with("tests", &pins(junit)), "relative to the root");
    }
    for (tests, phrase) in [
        (json!({"junit": "a", "run_min": 1}), "there is no `skipped`"),
        (
            json!({"junit": "a", "run_min": -1, "skipped": 0}),
            "`run_min` has to be",
        ),
        (
            json!({"junit": "a", "run_min": 1, "skipped": "0"}),
            "`skipped` has to be",
        ),
        (
            json!({"junit": "a", "run": 1}),
            "unknown key `run`; the keys are junit, run_min, skipped",
        ),
    ] {
        refuse(&with("tests", &tests), phrase);
    }
}

#[test]
fn every_key_names_itself_when_its_value_is_wrong() {
    for key in KEYS {
        for value in [
            json!(null),
            json!({}),
            json!(1.5),
            json!([1]),
            json!([null]),
        ] {
            // A table without names is one.
            if (key, &value) == ("capabilities", &json!({})) {
                continue;
            }
            refuse(&with(key, &value), &format!("`{key}`"));
        }
    }
}

#[test]
fn missing_unknown_and_repeated_keys_are_named() {
    for key in REQUIRED_KEYS {
        let mut contract: Value =
            serde_json::from_str(&with("schema", &json!("capgate/contract/1"))).expect("JSON");
        contract.as_object_mut().expect("an object").remove(key);
        refuse(&contract.to_string(), &format!("no `{key}`"));
    }
    refuse(
        &with("allow_nets", &json!([])),
        "unknown key `allow_nets`; the keys are schema, allow_net,",
    );
    refuse(&with("\u{1b}[2J", &json!([])), r"unknown key `\x1b[2J`");
    refuse(&with("Writes", &json!("")), "unknown key `Writes`");
    let twice = with("scratch", &json!([])).replace('}', r#","writes":"x"}"#);
    refuse(&twice, "the key `writes` twice");
    // The same key in another spelling of JSON.
    let twice = with("scratch", &json!([])).replace('}', r#","\u0077rites":"x"}"#);
    refuse(&twice, "the key `writes` twice");
}

#[test]
fn what_is_no_json_object_is_refused_with_the_place() {
    refuse("", "line 1 column 0");
    refuse("[]", "expected an object");
    refuse("null", "expected an object");
    refuse("{\n  \"allow_net\": [,\n", "line 2 column 17");
    refuse(&(with("scratch", &json!([])) + "{}"), "trailing characters");
    refuse("\u{feff}{}", "line 1 column 1");
    refuse(&"[".repeat(1000), "not a JSON object");
    refuse(
        &format!("{{\"scratch\": {}", "[".repeat(1000)),
        "recursion limit",
    );
    let error = Contract::from_json(b"{\"allow_net\": [\"\xff\"]}").expect_err("not UTF-8");
    assert!(error.to_string().contains("not a JSON object"), "{error}");
}

#[test]
fn another_schema_is_refused() {
    refuse(
        &with("schema", &json!("capgate/contract/2")),
        "`capgate/contract/2` is not `capgate/contract/1`",
    );
    refuse(&with("schema", &json!("capgate/ledger/1")), "`schema`");
}

#[test]
fn the_budget_is_a_whole_number_of_seconds() {
    for (value, expect) in [
        (json!(0), 0),
        (json!(30.0), 30),
        (json!(3e1), 30),
        (json!(1_000_000_000), 1_000_000_000),
    ] {
        assert_eq!(read(&with("cpu_budget", &value)).cpu_budget, expect);
    }
    for value in [
        json!(-1),
        json!(0.5),
        json!(-0.0),
        json!(1_000_000_001),
        json!(1e300),
        json!(u64::MAX),
    ] {
        refuse(
            &with("cpu_budget", &value),
            "`cpu_budget`: a whole number of seconds",
        );
    }
    refuse(
        &with("cpu_budget", &json!("30")),
        "is expected, not a string",
    );
}

#[test]
fn the_digest_has_64_lower_case_hex_digits() {
    refuse(
        &with("writes", &json!("")),
        "`writes`: a SHA-256 digest has 64 hex digits, this has 0",
    );
    refuse(
        &with("writes", &json!(&EMPTY_DIGEST[1..])),
        "has 63 characters",
    );
    refuse(
        &with("writes", &json!(format!("{EMPTY_DIGEST}0"))),
        "has 65 characters",
    );
    refuse(
        &with("writes", &json!(EMPTY_DIGEST.to_uppercase())),
        "`writes`, column 1: only the digits",
    );
    refuse(
        &with("writes", &json!(EMPTY_DIGEST.replace("55", "5g"))),
        "`writes`, column 64: only the digits",
    );
    refuse(
        &with("writes", &json!("é".repeat(32))),
        "this has 32 characters",
    );
}

#[test]
fn the_names_must_have_the_digest() {
    let contract = |paths: Value| {
        json!({ "allow_net": [], "cpu_budget": 1, "writes": A_AND_B, "write_paths": paths })
            .to_string()
    };
    read(&contract(json!(["a", "b"])));
    read(&contract(json!(["b", "a", "a"])));
    refuse(
        &contract(json!(["a"])),
        "`write_paths`: their digest is ca978112ca1b",
    );
    refuse(
        &contract(json!(["a", 1])),
        "`write_paths`[1]: a string is expected",
    );
}

#[test]
fn comparing_within_needs_the_names() {
    refuse(
        &with("compare_writes", &json!("within")),
        "`compare_writes`: `within` needs the names",
    );
    refuse(
        &with("compare_writes", &json!("loose")),
        "`exact` or `within` is expected, not `loose`",
    );
    read(&with("compare_writes", &json!("exact")));
}

#[test]
fn a_network_pattern_is_refused_with_its_column() {
    refuse(
        &with("allow_net", &json!(["192.0.2.1:1", "192.0.2.1:http"])),
        "`allow_net`[1], column 11: a port, `*` or a range `A-B` is expected (at most 65535), in `192.0.2.1:http`",
    );
    refuse(&with("allow_net", &json!(["\u{1b}[2J"])), r"in `\x1b[2J`");
}

#[test]
fn what_git_ignores_counts_unless_the_contract_says_otherwise() {
    assert!(!read(&with("ignore_gitignored", &json!(false))).ignore_gitignored);
    assert!(read(&with("ignore_gitignored", &json!(true))).ignore_gitignored);
    refuse(
        &with("ignore_gitignored", &json!("yes")),
        "`ignore_gitignored`: true or false is expected",
    );
}

#[test]
fn what_nobody_can_accept_is_no_accepted_blind_spot() {
    for name in ["cgroup-leave", "ptrace-outside", "contract-written"] {
        refuse(
            &with("allow_unseen", &json!(["docker", name])),
            &format!("`allow_unseen`[1]: `{name}` is never acceptable"),
        );
    }
    for name in ["", "Docker", "delegate:docker", "a b"] {
        refuse(
            &with("allow_unseen", &json!([name])),
            "`allow_unseen`[0]: a name such as",
        );
    }
}

#[test]
fn sizes_are_bounded() {
    let padding = " ".repeat(MAX_BYTES);
    refuse(
        &(with("scratch", &json!([])) + &padding),
        "more than the 1048576 that are read",
    );
    refuse(
        &with("scratch", &json!(["a".repeat(MAX_PATTERN_BYTES + 1)])),
        "`scratch`[0]: longer than 4096 bytes",
    );
    let many = |count: usize| vec!["a"; count];
    read(&with("ignore_writes", &json!(many(MAX_PATTERNS))));
    refuse(
        &with("ignore_writes", &json!(many(MAX_PATTERNS + 1))),
        "has 10001 patterns",
    );
    let wild = |count: usize| vec![format!("{}*", "a".repeat(1023)); count];
    read(&with("allow_exec", &json!(wild(MAX_WILDCARD_BYTES / 1024))));
    refuse(
        &with("allow_exec", &json!(wild(MAX_WILDCARD_BYTES / 1024 + 1))),
        "have 66560 bytes together",
    );
}

#[test]
fn a_budget_has_head_room_and_stays_in_bounds() {
    for (cpu_sec, budget) in [(0, 10), (1, 20), (5, 20), (6, 30), (60, 130)] {
        assert_eq!(super::budget_for(cpu_sec), budget, "{cpu_sec}");
    }
    assert_eq!(super::budget_for(u64::MAX), super::MAX_CPU_BUDGET);
}
