//! Hostile names in every format.

use capgate_common::{
    change::Change,
    compare::{Case, judge, seal},
    contract::Contract,
    evidence::{Column, DENIED, Entry, Evidence, Process},
    ledger::{Ledger, ProbeSet, Recording},
    outcome::Outcome,
    pathform::Forms,
    rules::Rules,
};

use super::{Files, Subject, plain};
use crate::{args::Format, base::Proposal};

/// What names, arguments and sentences try.
const HOSTILE: [&str; 13] = [
    "a\u{1b}]0;title\u{7}\u{1b}[2J",
    "::add-mask::x",
    "x ##[add-matcher]/tmp/x ##vso[task.complete]",
    "a`b``c` **bold** <img src=x onerror=y> @everyone [l](http://example.org)",
    "\u{202e}drow\u{9b}31m",
    "two\n::error::lines",
    "``` ends the block",
    "|cell| \\",
    "%0A::error::x",
    "]]></failure><testcase name='x'/> &amp; <!-- -- > \u{ffff}",
    "</script></details><h1>h1</h1> \",\"severity\":\"info\"",
    "it's $(id) `id` ; rm -rf ~ \\ '",
    "-rf\u{85}\u{2067}",
];

/// A name longer than any file system has.
fn long() -> String {
    "long/".repeat(4000)
}

/// A job that did everything wrong under these names.
fn report(format: Format) -> String {
    report_of(format, true)
}

/// A job that did much wrong; `broken`: so that nobody can accept any of it.
fn report_of(format: Format, broken: bool) -> String {
    let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
    let mut evidence = Evidence::default();
    recording.suite.absent = Some([HOSTILE[0].to_owned()].into());
    let long = long();
    for name in HOSTILE.into_iter().chain([&*long]) {
        recording.net.insert(name.to_owned());
        recording.write_paths.insert(name.to_owned());
        recording.execs.insert(name.to_owned());
        let units = recording.suite.skips.entry(HOSTILE[0].to_owned());
        units.or_default().insert(name.to_owned());
        if broken {
            recording.escapes.insert(name.to_owned());
            recording.coverage.unseen.insert(name.to_owned());
            recording.lose(name, 1);
        }
        evidence.entries.push(Entry {
            column: Column::Net,
            entry: name.to_owned(),
            addresses: std::collections::BTreeSet::new(),
            ops: vec![name.to_owned()],
            count: 1,
            first_ms: 1,
            by: vec![Process {
                pid: 1,
                exe: name.to_owned(),
                argv: vec![name.to_owned()],
                status: Some(3),
            }],
        });
    }
    let contract = r#"{"allow_net": [], "cpu_budget": 1, "allow_exec": [], "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "write_paths": []}"#;
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
        outcome: Outcome::Exited(i32::from(broken)),
        require_race_free: false,
        ignored: None,
        addresses: None,
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
        files: Some(&Files::new(
            "/srv/repo".as_ref(),
            "/srv/repo/-l $(id)'\u{9b}.json".as_ref(),
            Some("/srv/c`id`.json".as_ref()),
        )),
        tracked: None,
    };
    subject.write(format)
}

/// No report moves the cursor, turns text around, or has a runner's command where we put none.
fn is_harmless(text: &str, commands: bool) {
    let odd = |it: char| it != '\n' && (it.is_control() || "\u{202e}\u{2067}\u{ffff}".contains(it));
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
            "<h1>",
            "script",
            "testcase",
            "$(id)",
            "add-m",
            "drow",
            "title",
        ] {
            assert!(!outside.contains(word), "`{word}` in {line}");
        }
    }
    assert!(text.contains("**net**") && text.contains("*Next*"));
}

#[test]
fn a_gitlab_report_has_an_issue_for_each_finding_with_a_fingerprint_of_its_own() {
    let text = report(Format::Gitlab);
    is_harmless(&text, false);
    let issues: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut prints = std::collections::BTreeSet::new();
    for issue in &issues {
        assert_eq!(issue.as_object().unwrap().len(), 5, "{issue}");
        let print = issue["fingerprint"].as_str().unwrap();
        assert!(print.len() == 64 && prints.insert(print), "{issue}");
        assert!(
            ["blocker", "critical", "major", "minor"]
                .contains(&issue["severity"].as_str().unwrap())
        );
        assert!(!issue["description"].as_str().unwrap().is_empty());
        assert!(!issue["location"]["path"].as_str().unwrap().starts_with('/'));
        assert_eq!(issue["location"]["lines"]["begin"], 1);
    }
    for name in HOSTILE {
        let of = |check: &str| issues.iter().filter(|it| it["check_name"] == check).count();
        assert_eq!(of("capgate/net"), HOSTILE.len() + 1, "{name}");
    }
    let again: Vec<serde_json::Value> = serde_json::from_str(&report(Format::Gitlab)).unwrap();
    assert_eq!(issues, again);
}

#[test]
fn a_junit_report_is_well_formed_and_has_a_case_for_each_column() {
    use quick_xml::{Reader, events::Event};

    let text = report(Format::Junit);
    is_harmless(&text, false);
    let mut reader = Reader::from_str(&text);
    reader.config_mut().check_end_names = true;
    let (mut cases, mut failed, mut said) = (Vec::new(), Vec::new(), String::new());
    let mut within = Vec::new();
    let attribute = |start: &quick_xml::events::BytesStart<'_>, name: &str| {
        let found = start.try_get_attribute(name).unwrap().unwrap();
        quick_xml::escape::unescape(&found.value)
            .unwrap()
            .into_owned()
    };
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                let name = start.name().as_ref().to_owned();
                match &*name {
                    "testcase" => cases.push(attribute(&start, "name")),
                    "failure" => failed.push(attribute(&start, "type")),
                    "testsuite" | "system-out" => {}
                    other => panic!("an element of somebody else's: {other}"),
                }
                within.push(name);
            }
            Event::Empty(start) => {
                assert_eq!(start.name().as_ref(), "testcase");
                cases.push(attribute(&start, "name"));
            }
            Event::End(_) => drop(within.pop().unwrap()),
            Event::Text(part) => said.push_str(&part),
            Event::GeneralRef(_) | Event::Decl(_) => {}
            Event::Eof => break,
            other => panic!("not written by us: {other:?}"),
        }
    }
    assert!(within.is_empty());
    assert_eq!(
        cases,
        [
            "job",
            "recording",
            "net",
            "cpu",
            "writes",
            "execs",
            "escapes"
        ]
    );
    assert_eq!(
        failed,
        [
            "job-failed",
            "incomplete",
            "net",
            "writes",
            "execs",
            "escapes"
        ]
    );
    assert!(said.contains("testcase name"), "{said}");
}

/// The words of a line, as a shell takes them.
fn words(line: &str) -> Vec<String> {
    let script = format!("capgate() {{ printf '%s\\n' \"$@\"; }}; {line}");
    let said = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
    let said = String::from_utf8(said.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

#[test]
fn the_line_that_accepts_is_safe_to_paste_and_names_what_the_report_shows() {
    let text = plain(&report_of(Format::Human, false));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let line = |option: &str| {
        let has = |line: &&&str| line.starts_with("capgate accept") && line.contains(option);
        *lines.iter().find(has).unwrap()
    };
    let execs = words(line("--exec"));
    assert_eq!(
        execs[..3],
        ["accept", r"./-l $(id)'\u{9b}.json", "/srv/c`id`.json"]
    );
    let long = long();
    let names: Vec<String> = HOSTILE
        .into_iter()
        .chain([&*long])
        .map(crate::shown::harmless)
        .collect();
    // One that could be taken for an option comes in one word with its own.
    let given: Vec<&str> = execs[3..]
        .iter()
        .map(|word| word.strip_prefix("--exec=").unwrap_or(word))
        .filter(|&word| word != "--exec")
        .collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    let mut sorted = given.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, names);
    // So many names are accepted together.
    assert!(line("--writes").ends_with(" --writes"));
    // No pattern permits what is no destination, and nobody accepts anything of a job that failed.
    assert!(!text.contains("--net"), "{text}");
    assert!(!plain(&report(Format::Human)).contains("capgate accept"));
}

#[test]
fn what_the_kernel_refused_is_called_denied() {
    let check = |ops: &[&str], expect: &str| {
        let entry = Entry {
            column: Column::Net,
            entry: "192.0.2.1:9".to_owned(),
            addresses: std::collections::BTreeSet::new(),
            ops: ops.iter().copied().map(str::to_owned).collect(),
            count: 2,
            first_ms: 1500,
            by: Vec::new(),
        };
        assert_eq!(super::who(&entry).plain(), expect);
    };
    let who = "by an unknown process, first at 1.500 s, 2 times";
    check(&["connect"], who);
    check(&["connect", DENIED], &format!("{who}, denied"));
}
