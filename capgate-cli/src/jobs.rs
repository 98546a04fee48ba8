//! `ps`, `show`, `stop`, `status`: one question to the daemon each.

use std::{
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use capgate_common::protocol::{JobInfo, Request, Response, Status};
use serde::Serialize;

use crate::{
    args::{Daemon, LogArgs, PsArgs, ShowArgs, StatusArgs, StopArgs},
    client::{ClientError, Connection},
    report::{self, Delivery, Subject},
    shown::{harmless, harmless_json},
};

/// Longest command line in a list, in characters.
const COMMAND_WIDTH: usize = 60;

/// `capgate ps`.
///
/// # Errors
/// When the daemon cannot be asked, or stdout not written.
pub(crate) fn ps(args: &PsArgs) -> anyhow::Result<i32> {
    let jobs = ask(&args.daemon, "list the jobs")?;
    list(&jobs, args.json)
}

/// `capgate log`.
///
/// # Errors
/// When the daemon cannot be asked, or stdout not written.
pub(crate) fn log(args: &LogArgs) -> anyhow::Result<i32> {
    let mut jobs = ask(&args.daemon, "list the finished jobs")?;
    jobs.retain(|job| {
        let finished = matches!(job.state.as_str(), "done" | "lost");
        finished && args.labels.iter().all(|label| job.labels.contains(label))
    });
    jobs.reverse();
    jobs.truncate(args.number);
    list(&jobs, args.json)
}

/// Every job that the daemon shows this user, oldest first.
fn ask(daemon: &Daemon, what: &'static str) -> Result<Vec<JobInfo>, ClientError> {
    match Connection::open(&daemon.socket)?.ask(what, &Request::Ps)? {
        Response::Jobs { jobs } => Ok(jobs),
        _ => Err(ClientError::Unexpected(what)),
    }
}

/// The jobs on stdout: a table, or one JSON object a line.
fn list(jobs: &[JobInfo], json: bool) -> anyhow::Result<i32> {
    let text = if json {
        jobs.iter().map(json_line).collect()
    } else {
        table(jobs)
    };
    report::to_stdout(&text)?;
    Ok(0)
}

fn table(jobs: &[JobInfo]) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let head = [
        "JOB", "UID", "STATE", "AGE", "CPU", "EVENTS", "VERDICT", "COMMAND",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for job in jobs {
        let mut command = report::shorten(&job.argv.join(" "), COMMAND_WIDTH);
        if !job.labels.is_empty() {
            let _ = write!(command, "  [{}]", job.labels.join(", "));
        }
        rows.push([
            harmless(&job.job),
            job.uid.to_string(),
            harmless(&job.state),
            age(now.saturating_sub(job.started)),
            format!("{}s", job.cpu_sec),
            job.events.to_string(),
            harmless(&match job.verdict.as_slice() {
                [] => "-".to_owned(),
                words => words.join(","),
            }),
            harmless(&command),
        ]);
    }
    columns(&rows)
}

/// Rows of cells, each column as wide as its widest cell; the last one is not filled up.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `capgate show`.
///
/// # Errors
/// When the daemon cannot be asked, or stdout not written.
pub(crate) fn show(args: &ShowArgs) -> anyhow::Result<i32> {
    let what = "show the job";
    let job = args.job.clone();
    let answer = Connection::open(&args.daemon.socket)?.ask(what, &Request::Show { job })?;
    let Response::Sealed(sealed) = answer else {
        return Err(ClientError::Unexpected(what).into());
    };
    if args.evidence {
        report::to_stdout(&harmless_json(&sealed.evidence.to_json()))?;
    } else if args.ledger {
        report::to_stdout(&harmless_json(&sealed.ledger.to_json()))?;
    } else {
        let subject = Subject::of_job(&sealed, sealed.judgement.exit_code);
        Delivery::prepare(&args.reporting)?.deliver(&subject)?;
    }
    Ok(0)
}

/// `capgate stop`.
///
/// # Errors
/// When the daemon cannot be asked or refuses.
pub(crate) fn stop(args: &StopArgs) -> anyhow::Result<i32> {
    let what = "stop the job";
    let job = Some(args.job.clone());
    match Connection::open(&args.daemon.socket)?.ask(what, &Request::Stop { job })? {
        Response::Stopped => Ok(0),
        _ => Err(ClientError::Unexpected(what).into()),
    }
}

/// `capgate status`.
///
/// # Errors
/// When the daemon cannot be asked, or stdout not written.
pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<i32> {
    let status = ask_status(&mut Connection::open(&args.daemon.socket)?)?;
    let text = if args.json {
        json_line(&status)
    } else {
        status_text(&status)
    };
    report::to_stdout(&text)?;
    Ok(0)
}

/// What the daemon says of itself.
///
/// # Errors
/// When it cannot be asked.
pub(crate) fn ask_status(daemon: &mut Connection) -> Result<Status, ClientError> {
    let what = "tell its status";
    match daemon.ask(what, &Request::Status)? {
        Response::Status(status) => Ok(*status),
        _ => Err(ClientError::Unexpected(what)),
    }
}

fn status_text(status: &Status) -> String {
    let list = |items: &[String]| match items {
        [] => "none".to_owned(),
        items => items.join(", "),
    };
    let rows = [
        ("program", status.program.clone()),
        ("pid", status.pid.to_string()),
        ("kernel", status.kernel.clone()),
        (
            "probe set",
            format!(
                "{} ({}){}",
                status.probe_set,
                if status.race_free {
                    "race-free"
                } else {
                    "not race-free"
                },
                status
                    .fallback
                    .as_ref()
                    .map(|why| format!("; not fentry: {why}"))
                    .unwrap_or_default()
            ),
        ),
        ("attached", list(&status.attached)),
        ("not covered", list(&status.not_covered)),
        ("not refused", list(&status.not_denied)),
        ("cgroup2", status.cgroup_root.clone()),
        (
            "jobs",
            format!("{} of at most {}", status.running, status.max_jobs),
        ),
        ("memory", format!("{:.1} MiB", mebibytes(status.rss))),
        ("events", status.events.to_string()),
        ("lost", status.lost.to_string()),
        ("store", status.store.clone()),
        (
            "absent",
            format!(
                "{}; clients {} declare more",
                list(&status.absent.iter().cloned().collect::<Vec<_>>()),
                if status.allow_client_absent {
                    "may"
                } else {
                    "may not"
                }
            ),
        ),
    ]
    .map(|(name, value)| [name.to_owned(), harmless(&value)]);
    columns(&rows)
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// One line of JSON.
pub(crate) fn json_line<T: Serialize>(value: &T) -> String {
    // Only maps with keys that are no strings could fail, and there are none.
    let mut line = harmless_json(&serde_json::to_string(value).unwrap_or_default());
    line.push('\n');
    line
}
