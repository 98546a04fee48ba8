//! For anything that shows test results: a suite with one case for each column.

use std::io;

use capgate_common::verdict::Verdict;
use quick_xml::{
    Writer,
    events::{BytesDecl, BytesText, Event},
};

use super::{
    Subject,
    explain::{self, Point, seconds},
};

/// Entries shown in one failure; the ledger has them all.
const SHOWN: usize = 100;

/// A case, and the rows of the table of verdicts that make it fail.
const CASES: [(&str, &[Verdict]); 9] = [
    ("job", &[Verdict::JobFailed]),
    ("recording", &[Verdict::Incomplete]),
    ("net", &[Verdict::Net]),
    ("cpu", &[Verdict::CpuKill, Verdict::Cpu]),
    ("writes", &[Verdict::Writes]),
    ("execs", &[Verdict::Execs]),
    ("escapes", &[Verdict::Escapes]),
    ("tests", &[Verdict::Tests]),
    ("reaches", &[Verdict::Reach]),
];

pub(super) fn write(subject: &Subject<'_>) -> String {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    // Writing to memory cannot fail.
    let _ = suite(&mut writer, subject);
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    String::from_utf8_lossy(&bytes).into_owned()
}

fn suite(writer: &mut Writer<Vec<u8>>, subject: &Subject<'_>) -> io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let points = explain::points(subject);
    // Most jobs claim nothing of tests and are refused nothing, and a case about that would only be in the way.
    let cases = CASES.iter().filter(|(name, verdicts)| {
        !matches!(*name, "tests" | "reaches")
            || is_judged(subject, name)
            || points.iter().any(|it| verdicts.contains(&it.verdict))
    });
    let cases: Vec<_> = cases.collect();
    let failing = |verdicts: &[Verdict]| -> Vec<&Point> {
        let is_of = |point: &&Point| verdicts.contains(&point.verdict);
        points.iter().filter(is_of).collect()
    };
    // A command that could not be started kept no contract and broke none: its case alone says something.
    let never_ran = subject.judgement.verdict.is_empty();
    let skipped = |name: &str| name != "job" && (never_ran || !is_judged(subject, name));
    let failures = cases
        .iter()
        .filter(|(name, verdicts)| !failing(verdicts).is_empty() || (never_ran && *name == "job"))
        .count();
    let skips = cases
        .iter()
        .filter(|(name, verdicts)| failing(verdicts).is_empty() && skipped(name))
        .count();
    let time = subject.wall_ms.map(|ms| seconds(ms).replace(" s", ""));
    let (headline, about) = explain::first_line(subject);
    let about = format!("{} ({})", headline.plain(), about.plain());
    let mut suite = writer
        .create_element("testsuite")
        .with_attribute(("name", "capgate"))
        .with_attribute(("tests", cases.len().to_string().as_str()))
        .with_attribute(("failures", failures.to_string().as_str()))
        .with_attribute(("errors", "0"))
        .with_attribute(("skipped", skips.to_string().as_str()));
    if let Some(time) = &time {
        suite = suite.with_attribute(("time", time.as_str()));
    }
    suite.write_inner_content(|writer| {
        for &&(name, verdicts) in &cases {
            let case = writer
                .create_element("testcase")
                .with_attribute(("classname", "capgate"))
                .with_attribute(("name", name));
            let points = failing(verdicts);
            if let Some(first) = points.first() {
                let (word, message) = (first.verdict.word(), first.what.plain());
                let text: String = points.iter().map(|point| text_of(point)).collect();
                case.write_inner_content(|writer| failure(writer, word, &message, &text))?;
            } else if never_ran && name == "job" {
                let message = headline.plain();
                case.write_inner_content(|writer| failure(writer, name, &message, &message))?;
            } else if skipped(name) {
                case.write_inner_content(|writer| {
                    writer.create_element("skipped").write_empty()?;
                    Ok(())
                })?;
            } else {
                case.write_empty()?;
            }
        }
        let mut said = about.clone();
        for note in explain::notes(subject) {
            said.push_str("\nnote: ");
            said.push_str(&note.plain());
        }
        writer
            .create_element("system-out")
            .write_text_content(BytesText::new(&said))?;
        Ok(())
    })?;
    Ok(())
}

/// Whether a column is compared with anything.
fn is_judged(subject: &Subject<'_>, name: &str) -> bool {
    let recorded = subject.judgement.verdict.contains(&Verdict::Recorded);
    match name {
        "job" | "recording" => true,
        "tests" => subject.ledger.recording.suite.tests.is_some(),
        "reaches" => !recorded && subject.ledger.recording.reaches.is_some(),
        _ => !recorded,
    }
}

fn failure(writer: &mut Writer<Vec<u8>>, kind: &str, message: &str, text: &str) -> io::Result<()> {
    writer
        .create_element("failure")
        .with_attribute(("type", kind))
        .with_attribute(("message", message))
        .write_text_content(BytesText::new(text))?;
    Ok(())
}

fn text_of(point: &Point) -> String {
    let mut text = format!("{}: {}\n", point.verdict, point.what.plain());
    text.push_str(&explain::listed(&point.items, SHOWN));
    text.push_str(&explain::next_lines(point));
    text
}
