//! `capgate capability`: what a suite asks about its host. Nothing is probed; what is absent was declared.

mod check;
mod registry;
mod require;
mod sites;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
};

use anyhow::{Context as _, anyhow};
use capgate_common::capability::{self, VARIABLE};

use crate::{
    args::{Adapter, CapabilityCommand},
    report,
    shown::harmless,
};

/// The adapters, as they are shipped.
const PYTEST: &str = include_str!("../adapters/capgate_capability.py");
const SHELL: &str = include_str!("../adapters/capability.sh");

/// `capgate capability`.
///
/// # Errors
/// When nobody can tell: one sentence.
pub(crate) fn capability(command: &CapabilityCommand) -> anyhow::Result<i32> {
    match command {
        CapabilityCommand::Require(args) => require::require(args),
        CapabilityCommand::Check(args) => check::check(args),
        CapabilityCommand::Adapter(args) => {
            report::to_stdout(match args.adapter {
                Adapter::Pytest => PYTEST,
                Adapter::Shell => SHELL,
            })?;
            Ok(0)
        }
    }
}

/// What the environment declares absent.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn declared() -> anyhow::Result<BTreeSet<String>> {
    let Some(value) = env::var_os(VARIABLE) else {
        return Ok(BTreeSet::new());
    };
    let value = value
        .to_str()
        .ok_or_else(|| anyhow!("{VARIABLE} is not UTF-8"))?;
    capability::parse(value).with_context(|| format!("cannot read {VARIABLE}"))
}

/// Says loudly, to whoever reads either stream, that a job does not run.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn tell_lacking(absent: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let mut text = String::new();
    for (name, meaning) in absent {
        text.push_str(&format!(
            "capgate: runner declares {} absent ({}), and the contract requires it: the job did not run\n",
            harmless(name),
            harmless(meaning)
        ));
    }
    report::to_stderr(&text);
    report::to_stdout(&text).context("cannot write to stdout")
}
