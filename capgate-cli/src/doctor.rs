//! `capgate doctor`: whether this host can record jobs, and what to do about what is missing. Works without a daemon.

mod host;

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use capgate_common::protocol::Status;
use nix::unistd::{self, Group};
use serde::Serialize;

use crate::{
    args::DoctorArgs,
    client::Connection,
    jobs::{ask_status, json_line},
    local, report,
    shown::{harmless, shown},
};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be.
    Ok,
    /// Something to know.
    Note,
    /// It keeps jobs from being recorded, one way or all ways.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Fact {
    name: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Fact {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            level: Level::Ok,
            found: found.into(),
            hint: None,
        }
    }

    fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            level: Level::Note,
            ..Self::ok(name, found)
        }
    }

    fn bad(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            level: Level::Bad,
            hint: Some(hint.into()),
            ..Self::ok(name, found)
        }
    }

    fn but(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn is_bad(&self) -> bool {
        self.level == Level::Bad
    }
}

/// Looks at everything; the exit code says whether a job can be recorded.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<i32> {
    let host = host::facts();
    let service = service(args);
    let private = private();
    let by_service = service.iter().all(|fact| !fact.is_bad());
    let by_itself = host.iter().chain(&private).all(|fact| !fact.is_bad());
    let mut facts = host;
    facts.extend(service);
    facts.extend(private);
    facts.push(conclusion(by_service, by_itself));
    let text: String = facts
        .iter()
        .map(|fact| {
            if args.json {
                json_line(fact)
            } else {
                human(fact)
            }
        })
        .collect();
    report::to_stdout(&text)?;
    Ok(i32::from(!(by_service || by_itself)))
}

fn conclusion(by_service: bool, by_itself: bool) -> Fact {
    let name = "conclusion";
    match (by_service, by_itself) {
        (true, _) => Fact::ok(name, "jobs can be recorded: capgate run -- CMD"),
        (false, true) => Fact::ok(
            name,
            "jobs can be recorded with a private daemon: capgate run --local -- CMD",
        ),
        (false, false) => Fact::bad(
            name,
            "no job can be recorded",
            "see what is BAD above: either the daemon, or everything else",
        ),
    }
}

/// The service: whether it answers this user.
fn service(args: &DoctorArgs) -> Vec<Fact> {
    let socket = &args.daemon.socket;
    let name = "daemon";
    let mut facts = vec![group()];
    let asked = Connection::open(socket).and_then(|mut daemon| {
        let status = ask_status(&mut daemon)?;
        Ok((daemon, status))
    });
    match asked {
        Err(error) => facts.push(Fact::bad(name, "does not serve", error.to_string())),
        Ok((daemon, status)) => {
            facts.push(Fact::ok(
                name,
                format!(
                    "capgated {} serves at {}",
                    harmless(&daemon.daemon),
                    shown(socket)
                ),
            ));
            let set = harmless(&status.probe_set);
            facts.push(if status.race_free {
                Fact::ok("probe set", set)
            } else {
                Fact::note("probe set", format!("{set}, not race-free")).but(
                    "right for cooperative code; contracts with `require_race_free` end incomplete",
                )
            });
            if let Some(why) = &status.fallback {
                facts.push(Fact::note("fentry probes", harmless(why)));
            }
            if !status.absent.is_empty() {
                let names: Vec<String> = status.absent.iter().map(|name| harmless(name)).collect();
                facts.push(
                    Fact::note(
                        "absent",
                        format!("declared by the operator: {}", names.join(", ")),
                    )
                    .but("contracts that require one of these do not run their jobs here"),
                );
            }
            if !status.not_covered.is_empty() {
                facts.push(Fact::note(
                    "not covered",
                    harmless(&status.not_covered.join(", ")),
                ));
            }
            facts.push(enforcement(&status));
        }
    }
    facts
}

/// Whether the daemon can have the kernel refuse connections: one that loaded its probes can.
fn enforcement(status: &Status) -> Fact {
    let name = "enforcement";
    if status.not_denied.is_empty() {
        return Fact::note(name, "this capgated cannot refuse connections")
            .but("install the same release of both: `run --enforce` fails");
    }
    Fact::ok(
        name,
        format!(
            "connections can be refused (run --enforce); never refused: {}",
            harmless(&status.not_denied.join(", "))
        ),
    )
}

/// Whether this user may use the service. Its socket decides; this tells why.
fn group() -> Fact {
    let name = "group";
    if unistd::geteuid().is_root() {
        return Fact::ok(name, "root may record");
    }
    let Ok(Some(group)) = Group::from_name("capgate") else {
        return Fact::note(name, "there is no group `capgate`: only root may record").but(
            "install the service's sysusers entry, then add yourself: usermod -aG capgate $USER",
        );
    };
    let mine = unistd::getgroups().unwrap_or_default();
    if mine.contains(&group.gid) || unistd::getegid() == group.gid {
        return Fact::ok(name, "this process is in group `capgate`");
    }
    let user = unistd::User::from_uid(unistd::getuid()).ok().flatten();
    if user.is_some_and(|user| group.mem.contains(&user.name)) {
        Fact::note(name, "you are in group `capgate`, but not since this login")
            .but("log in again, or restart the runner")
    } else {
        Fact::note(name, "you are not in group `capgate`")
            .but("as root: usermod -aG capgate YOU, then log in again")
    }
}

/// `run --local`: what it needs beside the host.
fn private() -> Vec<Fact> {
    let program = match local::find_daemon() {
        Some(path) => Fact::ok("capgated", shown(path)),
        None => Fact::bad(
            "capgated",
            "not found",
            "install it beside capgate, in PATH, or in /usr/libexec: --local needs it",
        ),
    };
    let root = if unistd::geteuid().is_root() {
        host::capabilities()
    } else if let Some(sudo) = local::find_in_path("sudo") {
        Fact::note(
            "root",
            format!("{} may start a private daemon", shown(sudo)),
        )
        .but("whether it lets you, and asks for a password, shows only when it is used")
    } else {
        Fact::bad(
            "root",
            "not root, and there is no sudo",
            "--local needs one of them",
        )
    };
    vec![program, root]
}

fn human(fact: &Fact) -> String {
    let (word, colour) = match fact.level {
        Level::Ok => ("ok", AnsiColor::Green),
        Level::Note => ("note", AnsiColor::Yellow),
        Level::Bad => ("BAD", AnsiColor::Red),
    };
    let style: Style = colour.on_default().bold();
    // Writing to a String cannot fail.
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{style}{word:<4}{style:#}  {:<12} {}",
        fact.name, fact.found
    );
    if let Some(hint) = &fact.hint {
        let _ = writeln!(text, "{:19}-> {hint}", "");
    }
    text
}
