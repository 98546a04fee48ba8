//! `docs/ledger-format.md` and the JSON Schemas say what the code does: their tables and examples are run.
#![expect(clippy::expect_used, reason = "a test stops where it stands")]

use std::{collections::BTreeSet, fs, path::Path};

use capgate_common::{
    address::NetEntry,
    contract::{self, CompareWrites, Contract},
    escapes,
    evidence::Evidence,
    gitignored,
    glob::GlobPatterns,
    ledger::{self, Ledger},
    netpattern::{NetPattern, NetPatterns},
    outcome::{LOST_INTERRUPTED, LOST_LEASE, LOST_RACE},
    pathform::{Forms, escape},
    refuse::Refusals,
    seal::{EnvPattern, is_sealed},
    verdict::{
        EXIT_CPU_KILL, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_MATCH, EXIT_NOT_EXECUTABLE,
        EXIT_NOT_FOUND, EXIT_VIOLATION, Verdict,
    },
};
use serde_json::Value;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    fs::read_to_string(root.join(path)).expect(path)
}

/// What stands under a heading, down to the next heading of any depth.
fn section(heading: &str) -> String {
    let page = read("docs/ledger-format.md");
    let lines = page.lines().skip_while(|line| {
        line.trim_start_matches('#').trim() != heading || !line.starts_with('#')
    });
    let section: Vec<&str> = lines
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .collect();
    assert!(!section.is_empty(), "the page has a section {heading}");
    section.join("\n")
}

/// The rows of the tables under a heading, table by table, without their heads.
fn tables(heading: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = Vec::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in section(heading).lines().chain([""]) {
        match line
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
        {
            Some(row) => rows.push(row.split('|').map(|cell| cell.trim().to_owned()).collect()),
            None if !rows.is_empty() => tables.push(rows.drain(..).skip(2).collect()),
            None => {}
        }
    }
    assert!(!tables.is_empty(), "section {heading} has a table");
    tables
}

fn table(heading: &str) -> Vec<Vec<String>> {
    tables(heading).remove(0)
}

/// The texts in backquotes of a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn one(cell: &str) -> &str {
    quoted(cell).first().expect(cell)
}

fn column(rows: &[Vec<String>], index: usize) -> Vec<&str> {
    rows.iter().map(|row| one(&row[index])).collect()
}

/// The example blocks with a word after `json`.
fn examples(word: &str) -> Vec<String> {
    let page = read("docs/ledger-format.md");
    let fence = format!("```json {word}\n");
    let examples: Vec<String> = page
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().expect("an end").to_owned())
        .collect();
    assert!(!examples.is_empty(), "the page has an example of {word}");
    examples
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&read(&format!("ledgers/{name}.schema.json"))).expect(name)
}

/// The keys that an object's schema knows, and those that it requires; it allows no others.
fn schema_keys(object: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    assert_eq!(object["additionalProperties"], Value::Bool(false));
    let properties = object["properties"].as_object().expect("properties");
    let required = object["required"].as_array().expect("required");
    let required = required
        .iter()
        .map(|key| key.as_str().expect("a key").to_owned());
    (properties.keys().cloned().collect(), required.collect())
}

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .cloned()
        .collect()
}

#[test]
fn the_contract_table_and_schema_have_the_keys_of_the_code() {
    let rows = table("Contract");
    assert_eq!(column(&rows, 0), contract::KEYS);
    let required: Vec<&str> = rows
        .iter()
        .filter(|row| row[1] == "yes")
        .map(|row| one(&row[0]))
        .collect();
    assert_eq!(required, contract::REQUIRED_KEYS);
    assert!(rows.iter().all(|row| row[1] == "yes" || row[1] == "no"));
    assert_eq!(
        schema_keys(&schema("contract")),
        (words(&contract::KEYS), words(&contract::REQUIRED_KEYS))
    );
}

#[test]
fn the_bounds_of_a_contract_are_those_of_the_code() {
    let globs = section("Contract");
    assert!(globs.contains(&format!(
        "{} patterns in one contract",
        contract::MAX_PATTERNS
    )));
    assert!(globs.contains(&format!("at most {} bytes", contract::MAX_PATTERN_BYTES)));
    assert!(globs.contains(&format!(
        "at most {} bytes together",
        contract::MAX_WILDCARD_BYTES
    )));
    assert!(globs.contains(&format!("at most {}", contract::MAX_CPU_BUDGET)));
    assert!(globs.contains(contract::DEFAULT_PATH));
    assert_eq!(contract::MAX_BYTES, 1 << 20, "1 MiB in the page");
    assert_eq!(ledger::MAX_BYTES, 64 << 20, "64 MiB in the page");
    let schema = schema("contract");
    assert_eq!(
        schema["properties"]["cpu_budget"]["maximum"],
        contract::MAX_CPU_BUDGET
    );
    assert_eq!(
        schema["$defs"]["patterns"]["maxItems"],
        contract::MAX_PATTERNS
    );
    assert_eq!(
        schema["$defs"]["patterns"]["items"]["maxLength"],
        contract::MAX_PATTERN_BYTES
    );
    assert_eq!(schema["properties"]["schema"]["const"], contract::SCHEMA);
}

#[test]
fn the_example_contracts_are_read() {
    let contracts: Vec<Contract> = examples("contract")
        .iter()
        .map(|text| Contract::from_json(text.as_bytes()).expect(text))
        .collect();
    assert_eq!(contracts.len(), 2);
    let full: Value = serde_json::from_str(&examples("contract")[1]).expect("JSON");
    assert_eq!(keys(&full), words(&contract::KEYS));
    assert_eq!(contracts[1].compare_writes, CompareWrites::Within);
}

#[test]
fn the_ledger_tables_and_schema_have_the_keys_of_the_code() {
    let tables = tables("Ledger");
    assert_eq!(column(&tables[0], 0), ledger::KEYS);
    assert!(section("Ledger").contains(ledger::FILE_NAME));
    let schema = schema("ledger");
    assert_eq!(
        schema_keys(&schema),
        (
            words(&ledger::KEYS),
            &words(&ledger::KEYS) - &words(&ledger::OPTIONAL_KEYS)
        )
    );
    assert_eq!(schema["properties"]["schema"]["const"], ledger::SCHEMA);
    let example: Value = serde_json::from_str(&examples("ledger")[0]).expect("JSON");
    let coverage = keys(&example["coverage"]);
    assert_eq!(coverage, words(&column(&tables[1], 0)));
    let mut needed = coverage.clone();
    needed.remove("hooks");
    needed.remove("not_covered");
    needed.remove("enforced");
    assert_eq!(
        schema_keys(&schema["properties"]["coverage"]),
        (coverage, needed)
    );
}

#[test]
fn the_example_ledgers_are_read_and_written_byte_by_byte() {
    for text in examples("ledger") {
        let ledger = Ledger::from_json(text.as_bytes()).expect(&text);
        assert_eq!(ledger.to_json(), text);
    }
}

#[test]
fn the_evidence_table_schema_and_example_have_the_keys_of_the_code() {
    for text in examples("evidence") {
        let evidence = Evidence::from_json(text.as_bytes()).expect(&text);
        assert_eq!(evidence.to_json(), text);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let schema = schema("evidence");
        let check = |object: &Value, part: &Value| {
            assert_eq!(schema_keys(part), (keys(object), keys(object)));
        };
        let mut always = keys(&value);
        always.remove("sealed");
        assert_eq!(schema_keys(&schema), (keys(&value), always));
        check(&value["counts"], &schema["properties"]["counts"]);
        // The first entry is a destination by name; only these have addresses.
        let entry = keys(&value["entries"][0]);
        let mut needed = entry.clone();
        assert!(needed.remove("addresses"));
        assert_eq!(schema_keys(&schema["$defs"]["entry"]), (entry, needed));
        check(&value["transient"][0], &schema["$defs"]["item"]);
        check(&value["skips"][0], &schema["$defs"]["skip"]);
        // Not every process has a status; those of the example do.
        let process = keys(&value["leftovers"][0]);
        assert_eq!(process, keys(&value["entries"][1]["by"][0]));
        let mut needed = process.clone();
        needed.remove("status");
        assert_eq!(schema_keys(&schema["$defs"]["process"]), (process, needed));
        assert_eq!(words(&column(&table("Evidence"), 0)), keys(&value));
    }
}

#[test]
fn the_vectors_of_sealed_variables_hold() {
    for row in table("Sealed variables") {
        let pattern: EnvPattern = one(&row[0]).parse().expect(&row[0]);
        let patterns = [pattern];
        assert!(is_sealed(&patterns, one(&row[1]).as_bytes()), "{row:?}");
        assert!(!is_sealed(&patterns, one(&row[2]).as_bytes()), "{row:?}");
    }
}

#[test]
fn the_vectors_of_refusals_hold() {
    for row in table("Refusals") {
        let refusal = one(&row[0]).parse().expect(&row[0]);
        let refusals = Refusals::new(vec![refusal]).expect("usable");
        let is_refused = |reach: &str| match reach.split_once(':').expect(reach) {
            ("exec", program) => refusals.program(program),
            ("write", name) => refusals.write(name),
            ("net", destination) => refusals.destination(&destination.parse().expect(reach)),
            _ => refusals.destination(&reach.parse().expect(reach)),
        };
        assert!(is_refused(one(&row[1])), "{row:?}");
        assert!(!is_refused(one(&row[2])), "{row:?}");
    }
}

#[test]
fn the_vectors_of_escaping_hold() {
    for row in table("Escaping") {
        let bytes: Vec<u8> = one(&row[0])
            .split(' ')
            .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
            .collect();
        assert_eq!(escape(&bytes), one(&row[1]), "{}", row[0]);
    }
}

#[test]
fn the_vectors_of_paths_hold() {
    let forms = Forms::new(b"/home/u/work", Some(b"/home/u"), 1000).expect("a root");
    for row in tables("Paths").into_iter().flatten() {
        let form = forms
            .form(one(&row[0]).as_bytes(), &|pid| pid == 77)
            .expect("a form");
        assert_eq!(form.entry, one(&row[1]), "{}", row[0]);
    }
}

#[test]
fn the_entries_of_net_are_canonical() {
    for row in table("net") {
        let entry: NetEntry = one(&row[0]).parse().expect(&row[0]);
        assert_eq!(entry.to_string(), one(&row[0]));
    }
}

#[test]
fn the_globs_match_as_their_table_says() {
    for row in table("Globs") {
        let globs = GlobPatterns::new(&[one(&row[0]).to_owned()]).expect(&row[0]);
        assert!(globs.matches(one(&row[1])), "{row:?}");
        assert!(!globs.matches(one(&row[2])), "{row:?}");
    }
}

#[test]
fn the_network_patterns_permit_as_their_table_says() {
    let tables = tables("Network patterns");
    for row in &tables[0] {
        let pattern: NetPattern = one(&row[0]).parse().expect(&row[0]);
        let patterns = NetPatterns::new(&[pattern]).expect(&row[0]);
        let permits = |cell: &String| {
            let entries = quoted(cell);
            entries
                .first()
                .map(|entry| !patterns.matching(&entry.parse().expect(cell)).is_empty())
        };
        assert_ne!(permits(&row[1]), Some(false), "{row:?}");
        assert_eq!(permits(&row[2]), Some(false), "{row:?}");
    }
    for row in &tables[1] {
        let error = one(&row[0]).parse::<NetPattern>().expect_err(&row[0]);
        assert_eq!(error.column.to_string(), row[1], "{row:?}: {error}");
    }
}

#[test]
fn the_escapes_are_those_of_the_code() {
    let rows = table("escapes");
    for row in &rows {
        let accepted = match row[1].as_str() {
            "never" => None,
            cell => Some(one(cell)),
        };
        assert_eq!(escapes::acceptable_as(one(&row[0])), accepted, "{row:?}");
        assert_eq!(
            escapes::is_never_acceptable(one(&row[0])),
            accepted.is_none(),
            "{row:?}"
        );
    }
    let mut known = words(&[
        escapes::CGROUP_LEAVE,
        escapes::PTRACE_OUTSIDE,
        escapes::CONTRACT_WRITTEN,
    ]);
    known.extend(escapes::DELEGATES.map(escapes::delegate));
    assert_eq!(words(&column(&rows, 0)), known);
}

#[test]
fn what_gitignore_never_covers_is_what_the_code_never_covers() {
    let page = section("What git ignores");
    let listed = |start: &str| -> Vec<String> {
        let line = page.split("\n- ").find(|item| item.contains(start));
        quoted(line.expect(start))
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(listed("at any depth"), gitignored::NEVER_ANYWHERE);
    assert_eq!(listed("at the top"), gitignored::NEVER_AT_TOP);
    for bound in [
        gitignored::MAX_FILES,
        gitignored::MAX_RULE_BYTES,
        gitignored::MAX_NEVER_BYTES,
    ] {
        assert!(page.contains(&bound.to_string()), "{bound}");
    }
}

#[test]
fn the_vectors_of_the_digest_hold() {
    let rows = table("The digest of a write set");
    for row in &rows {
        assert_eq!(
            ledger::digest(&words(&quoted(&row[0]))),
            one(&row[1]),
            "{row:?}"
        );
    }
    assert_eq!(one(&rows[0][1]), ledger::EMPTY_DIGEST);
}

#[test]
fn the_kinds_of_loss_that_a_verdict_adds_are_named() {
    let complete = section("Complete");
    for kind in [LOST_INTERRUPTED, LOST_LEASE, LOST_RACE] {
        assert!(complete.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[test]
fn the_table_of_verdicts_has_the_words_and_codes_of_the_code() {
    let rows = table("Verdicts");
    let in_page: Vec<&str> = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    assert_eq!(in_page, Verdict::ALL.map(Verdict::word));
    let in_schema = &schema("ledger")["properties"]["verdict"]["items"]["enum"];
    assert_eq!(in_schema, &Value::from(in_page));
    let code = |word: &str| {
        let row = rows
            .iter()
            .find(|row| quoted(&row[0]) == [word])
            .expect(word);
        row[1].clone()
    };
    for (words, expect) in [
        (&["error"][..], EXIT_ERROR),
        (&["cpu-kill"], EXIT_CPU_KILL),
        (&["incomplete"], EXIT_INCOMPLETE),
        (
            &["reach", "net", "cpu", "writes", "execs", "escapes", "tests"],
            EXIT_VIOLATION,
        ),
        (&["match", "recorded"], EXIT_MATCH),
    ] {
        for word in words {
            assert_eq!(code(word), expect.to_string(), "{word}");
        }
    }
    let never_ran = rows
        .iter()
        .find(|row| row[0].is_empty())
        .expect("a row without a word");
    assert_eq!(
        never_ran[1],
        format!("{EXIT_NOT_EXECUTABLE}, {EXIT_NOT_FOUND}")
    );
}
