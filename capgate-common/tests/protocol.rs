//! `docs/protocol.md` says what the code does: its examples are messages, and its numbers the code's.
#![expect(clippy::expect_used, reason = "a test stops where it stands")]

use std::{collections::BTreeSet, fs, path::Path};

use capgate_common::{
    event::KIND_NAMES,
    protocol::{MAX_REQUEST, MAX_RESPONSE, Request, Response, VERSION, decode, encode},
};
use serde_json::Value;

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("the workspace");
    fs::read_to_string(root.join("docs/protocol.md")).expect("the page")
}

/// The examples that begin with this mark.
fn examples(mark: &str) -> Vec<String> {
    let page = page();
    let found: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix(mark))
        .filter(|line| line.starts_with('{'))
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty());
    found
}

/// The words under a key of the examples.
fn words(examples: &[String], key: &str) -> BTreeSet<String> {
    examples
        .iter()
        .map(|example| {
            let value: Value = serde_json::from_str(example).expect(example);
            value[key].as_str().expect(example).to_owned()
        })
        .collect()
}

#[test]
fn every_request_has_an_example_that_reads_and_writes_alike() {
    let examples = examples("> ");
    for example in &examples {
        let request: Request = decode(example.as_bytes(), MAX_REQUEST).expect(example);
        let written = encode(&request, MAX_REQUEST).expect(example);
        let written: Value = serde_json::from_slice(&written).expect(example);
        let read: Value = serde_json::from_str(example).expect(example);
        assert_eq!(written, read);
    }
    let expect = [
        "capability",
        "enter",
        "finish",
        "hello",
        "ps",
        "show",
        "start",
        "status",
        "stop",
        "tail",
    ];
    let found = words(&examples, "request");
    assert!(found.iter().eq(expect), "{found:?}");
}

#[test]
fn every_response_has_an_example_but_for_the_one_that_fills_a_page() {
    let examples = examples("< ");
    for example in &examples {
        let response: Response = decode(example.as_bytes(), MAX_RESPONSE).expect(example);
        let written = encode(&response, MAX_RESPONSE).expect(example);
        let written: Value = serde_json::from_slice(&written).expect(example);
        let read: Value = serde_json::from_str(example).expect(example);
        assert_eq!(written, read);
    }
    let expect = [
        "capability",
        "end",
        "entered",
        "error",
        "event",
        "hello",
        "jobs",
        "lacking",
        "lagged",
        "started",
        "status",
        "stopped",
    ];
    let found = words(&examples, "response");
    assert!(found.iter().eq(expect), "{found:?}");
    assert!(page().contains("`sealed`"));
}

#[test]
fn the_numbers_and_words_of_the_page_are_the_codes() {
    let page = page();
    for text in [
        format!("{MAX_REQUEST} bytes"),
        format!("{MAX_RESPONSE} bytes"),
        format!("This is version {VERSION}."),
    ] {
        assert!(page.contains(&text), "{text}");
    }
    for kind in &KIND_NAMES[1..] {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[test]
fn a_key_that_is_not_known_is_refused() {
    for line in [
        r#"{"request": "show", "job": "a", "more": 1}"#,
        r#"{"request": "enter", "token": "a", "job": "b"}"#,
        r#"{"request": "nothing"}"#,
        r#"{}"#,
        "",
    ] {
        assert!(
            decode::<Request>(line.as_bytes(), MAX_REQUEST).is_err(),
            "{line}"
        );
    }
}
