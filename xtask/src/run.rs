//! `cargo xtask run`: a command in a local job, straight from a clone.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStringExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{build, workspace};

/// Where `capgate run` looks for the contract below its root, unless it is told.
const CONTRACT: &str = "tests/capability.ledger.json";

/// What `cargo run` sets for the program that it starts. A job must not see it: a build in the job would take the
/// settings for its own.
const OF_CARGO_RUN: [&str; 7] = [
    "CARGO",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_",
    "RUST_RECURSION_COUNT",
    "RUSTUP_TOOLCHAIN",
    "RUSTUP_TOOLCHAIN_SOURCE",
];

/// Builds what is missing and becomes `capgate run --local`. A separator that begins the words is already gone.
pub(crate) fn in_local_job(words: Vec<OsString>) -> Result<()> {
    let (options, command) = split(words)?;
    build::binaries()?;
    let mut capgate = Command::new(workspace::binary("capgate"));
    capgate.args(["run", "--local"]);
    let here = env::current_dir().context("cannot tell the current directory")?;
    if !options.iter().any(says_how_to_judge) && !job_root(&options, &here).join(CONTRACT).exists()
    {
        capgate.arg("--record");
    }
    capgate.args(options).arg("--").args(command);
    clean(&mut capgate);
    let failed = capgate.exec();
    Err(failed).with_context(|| format!("cannot run {}", capgate.get_program().display()))
}

/// Options and command: words that begin with an option are options up to `--`, others are the command.
fn split(mut words: Vec<OsString>) -> Result<(Vec<OsString>, Vec<OsString>)> {
    if words
        .first()
        .is_some_and(|first| !first.as_encoded_bytes().starts_with(b"-"))
    {
        return Ok((Vec::new(), words));
    }
    match words.iter().position(|word| word == "--") {
        Some(end) if end + 1 < words.len() => {
            let command = words.split_off(end + 1);
            words.truncate(end);
            Ok((words, command))
        }
        _ => bail!("no command to run: cargo xtask run [OPTIONS] -- COMMAND…"),
    }
}

/// Whether an option settles what the job is compared with.
fn says_how_to_judge(option: &OsString) -> bool {
    let option = option.to_string_lossy();
    ["--record", "--contract", "--base"]
        .iter()
        .any(|name| value_of(&option, name).is_some() || option == *name)
}

/// The value in `--name=value`.
fn value_of<'a>(option: &'a str, name: &str) -> Option<&'a str> {
    option.strip_prefix(name)?.strip_prefix('=')
}

/// The root that `capgate run` will choose: `--root`, else the git toplevel, else the current directory.
fn job_root(options: &[OsString], here: &Path) -> PathBuf {
    for (i, option) in options.iter().enumerate() {
        let option = option.to_string_lossy();
        let given = match value_of(&option, "--root") {
            Some(dir) => Some(OsString::from(dir)),
            None if option == "--root" => options.get(i + 1).cloned(),
            None => None,
        };
        if let Some(dir) = given {
            return here.join(dir);
        }
    }
    git_toplevel(here).unwrap_or_else(|| here.to_owned())
}

/// The top of the git work tree around a directory.
fn git_toplevel(dir: &Path) -> Option<PathBuf> {
    let output = Command::new("git")
        .args(["rev-parse", "--show-toplevel"])
        .current_dir(dir)
        .output()
        .ok()?;
    let mut line = output.stdout;
    line.pop_if(|last| *last == b'\n')?;
    output
        .status
        .success()
        .then(|| PathBuf::from(OsString::from_vec(line)))
}

/// Takes what `cargo run` added out of a command's environment.
fn clean(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if OF_CARGO_RUN.iter().any(|ours| is_of(&name, ours)) {
            command.env_remove(name);
        }
    }
    let Some(libraries) = env::var_os("LD_LIBRARY_PATH") else {
        return;
    };
    match without_cargos(
        &libraries,
        own_directory().as_deref(),
        env::var_os("CARGO").as_deref(),
    ) {
        Some(callers) => command.env("LD_LIBRARY_PATH", callers),
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
}

/// The directory of this program.
fn own_directory() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.to_owned())
}

/// The caller's directories in `LD_LIBRARY_PATH`, before which cargo put those of the build in `built` and of its own compiler;
/// nothing when the caller had none.
fn without_cargos(
    libraries: &OsStr,
    built: Option<&Path>,
    cargo: Option<&OsStr>,
) -> Option<OsString> {
    let compiler = cargo.and_then(|cargo| Some(Path::new(cargo).parent()?.parent()?.join("lib")));
    let is_cargos = |dir: &PathBuf| {
        built.is_some_and(|built| dir.starts_with(built))
            || compiler
                .as_ref()
                .is_some_and(|lib| dir == lib || dir.starts_with(lib.join("rustlib")))
    };
    let callers: Vec<_> = env::split_paths(libraries)
        .filter(|dir| !is_cargos(dir))
        .collect();
    if callers.is_empty() {
        None
    } else {
        env::join_paths(callers).ok()
    }
}

/// Whether a variable has this name, or begins with it when it ends in `_`.
fn is_of(name: &OsStr, pattern: &str) -> bool {
    let name = name.as_encoded_bytes();
    if pattern.ends_with('_') {
        name.starts_with(pattern.as_bytes())
    } else {
        name == pattern.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn check(line: &str, options: &str, command: &str) {
        assert_eq!(
            split(words(line)).unwrap(),
            (words(options), words(command)),
            "{line}"
        );
    }

    #[test]
    fn options_stand_before_the_separator() {
        check("pytest -q", "", "pytest -q");
        check("git diff -- a", "", "git diff -- a");
        check("--record -- make -j2", "--record", "make -j2");
        check(
            "--label x -- sh -c true -- y",
            "--label x",
            "sh -c true -- y",
        );
    }

    #[test]
    fn options_without_a_command_are_an_error() {
        for line in ["", "--record", "--record --"] {
            assert!(split(words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn an_option_that_names_a_contract_is_seen_in_both_forms() {
        for option in ["--record", "--contract", "--contract=a.json", "--base=main"] {
            assert!(says_how_to_judge(&option.into()), "{option}");
        }
        for option in ["--recorder", "--root", "contract", "--ledger=--contract"] {
            assert!(!says_how_to_judge(&option.into()), "{option}");
        }
    }

    #[test]
    fn the_root_is_the_option_then_the_repository_then_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().canonicalize().unwrap().join("sub");
        std::fs::create_dir(&here).unwrap();
        assert_eq!(job_root(&[], &here), here);
        assert_eq!(
            job_root(&words("--root /srv/x"), &here),
            Path::new("/srv/x")
        );
        assert_eq!(job_root(&words("--root=.."), &here), here.join(".."));
        let git = Command::new("git")
            .args(["init", "-q"])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(git.success());
        assert_eq!(job_root(&[], &here), here.parent().unwrap());
    }

    #[test]
    fn only_the_callers_library_directories_reach_the_job() {
        let check = |libraries: &str, expect: Option<&str>| {
            let cargo = OsStr::new("/opt/rust/bin/cargo");
            let left = without_cargos(
                OsStr::new(libraries),
                Some(Path::new("/w/target/debug")),
                Some(cargo),
            );
            assert_eq!(left.as_deref(), expect.map(OsStr::new), "{libraries}");
        };
        check(
            "/w/target/debug:/w/target/debug/deps:/opt/rust/lib/rustlib/x/lib:/opt/rust/lib:/opt/mine",
            Some("/opt/mine"),
        );
        check("/w/target/debug:/opt/rust/lib", None);
        check(
            "/opt/rust/lib/mine:/w/target",
            Some("/opt/rust/lib/mine:/w/target"),
        );
    }
}
