//! Hostile names in every format.

use capgate_common::{
    change::Change,
    compare::{Case, judge, seal},
    contract::Contract,
    evidence::{Column, Entry, Evidence, Process},
    ledger::{Ledger, ProbeSet, Recording},
    outcome::Outcome,
    pathform::Forms,
    rules::Rules,
};

use super::{Subject, plain};
use crate::{args::Format, base::Proposal};

/// What names, arguments and sentences try.
const HOSTILE: [&str; 9] = [
    "a\u{1b}]0;title\u{7}\u{1b}[2J",
    "::add-mask::x",
    "x ##[add-matcher]/tmp/x ##vso[task.complete]",
    "a`b``c` **bold** <img src=x onerror=y> @everyone [l](http://example.org)",
    "\u{202e}drow\u{9b}31m",
    "two\n::error::lines",
    "``` ends the block",
    "|cell| \\",
    "%0A::error::x",
];

/// A job that did everything wrong under these names.
fn report(format: Format) -> String {
    let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
    let mut evidence = Evidence::default();
    for name in HOSTILE {
        recording.net.insert(name.to_owned());
        recording.write_paths.insert(name.to_owned());
        recording.escapes.insert(name.to_owned());
        recording.coverage.unseen.insert(name.to_owned());
        recording.lose(name, 1);
        evidence.entries.push(Entry {
            column: Column::Net,
            entry: name.to_owned(),
            ops: vec![name.to_owned()],
            count: 1,
            first_ms: 1,
            by: vec![Process {
                pid: 1,
                exe: name.to_owned(),
                argv: vec![name.to_owned()],
            }],
        });
    }
    let contract = r#"{"allow_net": [], "cpu_budget": 1, "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "write_paths": []}"#;
    let contract = Contract::from_json(contract.as_bytes()).unwrap();
    let forms = Forms::new(b"/", None, 0).unwrap();
    let rules = Rules::new(
        contract,
        &std::collections::BTreeMap::default(),
        &forms,
        None,
    )
    .unwrap();
    let case = Case {
        recording: &recording,
        rules: Some(&rules),
        outcome: Outcome::Exited(1),
        require_race_free: false,
        ignored: None,
    };
    let judgement = judge(&case);
    let ledger: Ledger = seal(&case, &judgement);
    let notes = HOSTILE.map(str::to_owned);
    let subject = Subject {
        job: Some(HOSTILE[0]),
        judgement: &judgement,
        ledger: &ledger,
        evidence: Some(&evidence),
        notes: &notes,
        argv: &notes,
        contract: Some(HOSTILE[5]),
        proposal: Some(&Proposal::Changed(
            HOSTILE
                .map(|name| Change::Added {
                    key: "allow_net",
                    member: name.to_owned(),
                })
                .to_vec(),
        )),
        wall_ms: Some(1),
        exit_code: 1,
    };
    subject.write(format)
}

/// No report moves the cursor, turns text around, or has a runner's command where we put none.
fn is_harmless(text: &str, commands: bool) {
    let odd = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
    assert!(!text.contains(odd), "{text:?}");
    for line in text.lines() {
        assert!(!line.contains("##["), "{line}");
        assert!(!line.contains("##vso["), "{line}");
        assert!(commands || !line.trim_start().starts_with("::"), "{line}");
    }
}

#[test]
fn a_human_report_is_harmless() {
    let text = report(Format::Human);
    assert!(text.contains('\u{1b}'), "it has colours");
    is_harmless(&plain(&text), false);
}

#[test]
fn a_json_report_is_harmless_and_true() {
    let text = report(Format::Json);
    is_harmless(&text, false);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let net: Vec<&str> = value["ledger"]["net"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(serde_json::Value::as_str)
        .collect();
    for name in HOSTILE {
        assert!(net.contains(&name), "{name:?}");
    }
}

#[test]
fn every_line_of_a_github_report_is_one_command_of_ours() {
    let text = report(Format::Github);
    is_harmless(&text, true);
    for line in text.lines() {
        let command = line.strip_prefix("::").unwrap();
        let (head, _) = command.split_once("::").unwrap();
        let (level, title) = head.split_once(" title=").unwrap();
        assert!(["error", "warning", "notice"].contains(&level), "{line}");
        assert!(
            title.starts_with("capgate") && !title.contains(','),
            "{line}"
        );
    }
    // A percent sign in a name stays one.
    assert!(text.contains("%250A::error::x"), "{text}");
}

/// What is left of Markdown when its code spans are taken out, by the rule of CommonMark: a span ends at the next run of backticks
/// as long as the one that began it.
fn outside_of_code(markdown: &str) -> String {
    let run = |text: &str| text.chars().take_while(|&it| it == '`').count();
    let mut outside = String::new();
    let mut rest = markdown;
    while let Some(start) = rest.find('`') {
        outside.push_str(&rest[..start]);
        let open = run(&rest[start..]);
        let mut inside = &rest[start + open..];
        loop {
            let next = inside.find('`').expect("every span ends");
            let close = run(&inside[next..]);
            inside = &inside[next + close..];
            if close == open {
                break;
            }
        }
        rest = inside;
    }
    outside.push_str(rest);
    outside
}

#[test]
fn nothing_of_a_name_is_markdown() {
    let text = report(Format::Markdown);
    is_harmless(&text, false);
    // Spans do not cross lines, so that each is looked at alone.
    for line in text.lines() {
        let outside = outside_of_code(line);
        for word in [
            "bold",
            "<img",
            "@everyone",
            "http",
            "cell",
            "add-m",
            "drow",
            "title",
        ] {
            assert!(!outside.contains(word), "`{word}` in {line}");
        }
    }
    assert!(text.contains("**net**") && text.contains("*Next*"));
}
