//! Completion scripts and manual pages, made from the command line's own definition.

use std::{fs, path::Path};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{
    args::{Cli, CompletionsArgs, ManArgs},
    report,
    shown::shown,
};

/// `capgate completions`.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "capgate", &mut script);
    report::to_stdout(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// `capgate man`.
///
/// # Errors
/// When stdout or the directory cannot be written.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<i32> {
    let Some(directory) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        report::to_stdout(&String::from_utf8_lossy(&page))?;
        return Ok(0);
    };
    write_pages(directory)
        .with_context(|| format!("cannot write the manual pages to {}", shown(directory)))?;
    Ok(0)
}

fn write_pages(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)?;
    Ok(())
}
