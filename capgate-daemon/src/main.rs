//! capgated, the daemon.

use std::process::ExitCode;

use capgate_daemon::{args::Args, daemon};
use clap::Parser;

fn main() -> ExitCode {
    match daemon::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capgated: {error:#}");
            ExitCode::FAILURE
        }
    }
}
