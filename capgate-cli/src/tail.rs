//! `capgate tail`: a job's events as they happen.

use std::io;

use capgate_common::protocol::{Request, Response, StreamEvent};
use serde::Serialize;

use crate::{
    args::TailArgs,
    client::{ClientError, Connection},
    jobs::json_line,
    report,
    shown::harmless,
};

const WHAT: &str = "follow the job";

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum Line<'a> {
    /// Something happened.
    Event(&'a StreamEvent),
    /// This many events came too fast for this reader.
    Lagged { missed: u64 },
    /// Nothing follows.
    End { verdict: &'a [String] },
}

/// Follows a job to its end.
///
/// # Errors
/// When the daemon cannot be asked or goes away, or stdout cannot be written.
pub(crate) fn tail(args: &TailArgs) -> anyhow::Result<i32> {
    let mut daemon = Connection::open(&args.daemon.socket)?;
    let request = Request::Tail {
        job: args.job.clone(),
        kinds: args.kinds.clone(),
        backlog: !args.no_backlog,
    };
    daemon.send(WHAT, &request, &[])?;
    loop {
        let response = daemon.receive(WHAT, None)?;
        let line = match &response {
            Response::Event(event) => Line::Event(event),
            Response::Lagged { missed } => Line::Lagged { missed: *missed },
            Response::End { verdict } => Line::End { verdict },
            _ => return Err(ClientError::Unexpected(WHAT).into()),
        };
        let text = if args.json {
            json_line(&line)
        } else {
            human(&line)
        };
        match report::to_stdout(&text) {
            Ok(()) => {}
            // A reader such as `head` has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            Err(error) => return Err(anyhow::Error::new(error).context("cannot write to stdout")),
        }
        if let Line::End { .. } = line {
            return Ok(0);
        }
    }
}

fn human(line: &Line<'_>) -> String {
    match line {
        Line::Event(event) => {
            let exe = event.exe.as_deref().unwrap_or("?");
            let who = format!("{exe}[{}]", event.pid);
            format!(
                "{:>10}  {:<7} {:<9} {}  {}\n",
                report::seconds(event.ms),
                harmless(&event.kind),
                harmless(&event.op),
                harmless(&event.subject),
                harmless(&who),
            )
        }
        Line::Lagged { missed } => {
            format!("… {missed} events missed: they came faster than they were read\n")
        }
        Line::End { verdict } => format!("the job has ended: {}\n", harmless(&verdict.join(", "))),
    }
}
