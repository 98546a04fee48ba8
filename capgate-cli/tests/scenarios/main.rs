//! The one scenario suite: inputs that broke other recorders, each with its right answer stated once, run by the real client and
//! the real daemon on whatever kernel and probe set there is. The same executable runs natively and in the kernel matrix; rows and
//! cells are explained in `docs/scenarios.md`. Needs root.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, fs::File, process::ExitCode, sync::Arc};

use capgate_common::ledger::ProbeSet;
use cells::Environment;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::fcntl::{Flock, FlockArg};
use row::{Row, Tracepoint};
use service::{Launch, Service};

#[path = "../support/absent.rs"]
mod absent;
#[path = "../support/service.rs"]
mod service;

mod cells;
mod judge;
mod links;
mod programs;
mod row;
mod rows;
mod site;

/// What all rows share.
struct Suite {
    environment: Environment,
    service: Service,
    /// What was attached before the first job.
    at_rest: Vec<links::Link>,
    /// Directories have fixed names: another suite on this machine comes first, or waits.
    _lock: Flock<File>,
}

impl Suite {
    fn prepare(environment: Environment) -> Self {
        let lock = File::create("/tmp/capgate-scenario.lock").unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        site::sweep();
        programs::install_all(environment.programs.as_deref());
        let arguments = match environment.probe_set {
            Some(set) => vec!["--probe-set", set.word()],
            None => Vec::new(),
        };
        let binaries = environment.binaries.as_deref();
        let service = Service::launch(&Launch {
            programs: binaries.unwrap_or(service::built()),
            arguments: &arguments,
            // An emulated machine takes seconds to attach, and its processors do not always agree about code that changes.
            linger: 3600,
            ..Launch::default()
        });
        let at_rest = links::of(daemon(&service));
        Self {
            environment,
            service,
            at_rest,
            _lock: lock,
        }
    }

    /// Runs a row.
    fn run(&self, row: &Row) -> Result<(), Failed> {
        if let Some(needs) = row.needs
            && absent::skip(row.name, needs)?
        {
            return Ok(());
        }
        judge::judge(row, &self.service, &self.environment)?;
        Ok(())
    }
}

/// Process id of the daemon.
fn daemon(service: &Service) -> u32 {
    service.child.as_ref().map_or(0, std::process::Child::id)
}

impl Suite {
    /// Nothing is attached without a job, and with one no more than the set needs: the `fentry` set costs an unrelated system call
    /// nothing.
    fn judge_links(&self) -> Result<(), Failed> {
        if !self.at_rest.is_empty() {
            return Err(format!("attached without a job: {:?}", self.at_rest).into());
        }
        self.run(&Row::sh("a_job_that_does_nothing", "true"))?;
        // The probes linger.
        let set = self.environment.probe_set.unwrap_or(ProbeSet::Tracepoint);
        links::judge(&links::of(daemon(&self.service)), set)?;
        Ok(())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let environment = match Environment::read() {
        Ok(environment) => environment,
        Err(error) => {
            eprintln!("scenarios: {error}");
            return ExitCode::FAILURE;
        }
    };
    let areas = rows::all();
    let names: Vec<&str> = areas
        .iter()
        .flat_map(|(_, rows)| rows.iter().map(|row| row.name))
        .collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len(), "two rows have one name");
    let (cell, set) = (environment.cell, environment.probe_set);
    // A list needs no daemon.
    let suite = Arc::new((!arguments.list).then(|| Suite::prepare(environment)));
    let mut trials = Vec::new();
    for (area, rows) in areas {
        for row in rows {
            let is_here = row.cells.contains(&cell);
            if !is_here || is_excluded(&row, set) {
                continue;
            }
            let suite = Arc::clone(&suite);
            trials.push(Trial::test(format!("{area}::{}", row.name), move || {
                let suite = Option::as_ref(&suite).ok_or("only listed")?;
                suite.run(&row)
            }));
        }
    }
    let name = "probes::attached_to_what_they_need_and_nothing_else";
    let all = Arc::clone(&suite);
    trials.push(Trial::test(name, move || {
        let suite = Option::as_ref(&all).ok_or("only listed")?;
        suite.judge_links()
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // The daemon ends with the suite, before the process does.
    drop(suite);
    conclusion.exit_code()
}

/// Whether a row is no question for the set in use, and said so.
fn is_excluded(row: &Row, set: Option<ProbeSet>) -> bool {
    match row.tracepoint {
        Tracepoint::Excluded(why) if set != Some(ProbeSet::Fentry) => {
            eprintln!("scenarios: {} is for the fentry set alone: {why}", row.name);
            true
        }
        _ => false,
    }
}
