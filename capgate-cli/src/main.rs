//! `capgate`: runs a command in a recorded job and gates it on its contract.

mod accept;
mod args;
mod attend;
mod base;
mod capability;
mod check;
mod client;
mod diff;
mod doctor;
mod edit;
mod enter;
mod generate;
mod git;
mod human_only;
mod inherited;
mod init;
mod jobs;
mod local;
mod output;
mod place;
mod private;
mod report;
mod run;
mod seal;
mod shims;
mod shown;
mod signals;
mod supervise;
mod tail;
mod tracked;
mod witness;

use std::process::ExitCode;

use args::{Cli, Command, Step};
use capgate_common::verdict::EXIT_ERROR;
use clap::Parser as _;

fn main() -> ExitCode {
    let step = std::env::args_os().nth(1);
    let done = if step.is_some_and(|argument| Step::is_asked_for(&argument)) {
        Step::try_parse().map(take)
    } else {
        Cli::try_parse().map(|cli| dispatch(cli.command))
    };
    let code = match done {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            report::to_stderr(&format!("capgate: {error:#}\n"));
            EXIT_ERROR
        }
        Err(usage) => {
            // Help and version are data, anything else is talk. Nobody is left to tell when that fails.
            let _ = usage.print();
            if usage.use_stderr() { EXIT_ERROR } else { 0 }
        }
    };
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Carries out a command; comes back with the exit code.
fn dispatch(command: Command) -> anyhow::Result<i32> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Init(args) => init::init(&args),
        Command::Check(args) => check::check(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Accept(args) => accept::accept(&args),
        Command::Ps(args) => jobs::ps(&args),
        Command::Log(args) => jobs::log(&args),
        Command::Report(args) => check::report(&args),
        Command::Tail(args) => tail::tail(&args),
        Command::Show(args) => jobs::show(&args),
        Command::Stop(args) => jobs::stop(&args),
        Command::Status(args) => jobs::status(&args),
        Command::Capability(args) => capability::capability(&args.command),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    }
}

/// Takes a step of `run`.
fn take(step: Step) -> anyhow::Result<i32> {
    match step {
        Step::Enter(args) => Ok(enter::enter(&args)),
        Step::Witness => match witness::watch()? {},
    }
}
