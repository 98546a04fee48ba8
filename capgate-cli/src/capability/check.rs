//! `capgate capability check`: the units that a suite gates are the ones that its registry declares, each once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use capgate_common::capability::Declaration;

use super::{
    PYTEST, SHELL,
    registry::{self, Registry},
    require, sites,
};
use crate::{
    args::CapabilityCheckArgs,
    place, report,
    shown::{harmless, shown},
};

/// Where a registry is, relative to the root.
const REGISTRY: &str = "tests/host-capabilities.tsv";
/// Largest registry, and largest file that is searched, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Endings of files that only talk of gates.
const PROSE: [&str; 4] = ["adoc", "md", "rst", "txt"];

/// One sentence for each thing that is wrong; the exit code says whether there is any.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn check(args: &CapabilityCheckArgs) -> anyhow::Result<i32> {
    let root = place::root(args.root.as_deref())?;
    let contract = place::contract_path(args.contract.as_deref(), &root);
    let contract = require::read(&contract)?;
    let known = Declaration::new(Some(&contract), &BTreeSet::new(), &BTreeSet::new())?;
    let path = match &args.registry {
        Some(path) => std::path::absolute(path)
            .with_context(|| format!("cannot find the registry {}", shown(path)))?,
        None => root.join(REGISTRY),
    };
    let text = place::read_text(&path, MAX_BYTES)
        .with_context(|| format!("cannot read the registry {}", shown(&path)))?;
    let mut directories = Vec::new();
    for directory in &args.within {
        let real = fs::canonicalize(directory)
            .with_context(|| format!("cannot search {}", shown(directory)))?;
        directories.push(real);
    }
    if directories.is_empty() {
        directories.extend(path.parent().map(Path::to_owned));
    }
    let mut files = BTreeMap::new();
    for directory in &directories {
        search(&root, directory, &mut files)
            .with_context(|| format!("cannot search {}", shown(directory)))?;
    }
    let registry_name = name_of(&root, &path);
    let complaints = complaints(&registry_name, &text, &files, &known);
    let mut said = String::new();
    for complaint in &complaints.sentences {
        said.push_str(&harmless(complaint));
        said.push('\n');
    }
    if complaints.sentences.is_empty() {
        said = format!(
            "{} units are gated, as {} declares\n",
            complaints.gated,
            harmless(&registry_name)
        );
    }
    report::to_stdout(&said)?;
    Ok(i32::from(!complaints.sentences.is_empty()))
}

fn name_of(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// Takes the text of every file below a directory that may gate a unit, by its name from the root.
fn search(root: &Path, directory: &Path, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    let mut open: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let kind = entry.file_type()?;
            if kind.is_dir() && !hidden && entry.file_name() != "__pycache__" {
                open.push(path);
            } else if kind.is_file() && !is_prose(&path) {
                let bytes = fs::read(&path)?;
                // A program, not a script.
                if bytes.len() > MAX_BYTES || bytes.contains(&0) {
                    continue;
                }
                let text = String::from_utf8_lossy(&bytes).into_owned();
                files.insert(name_of(root, &path), text);
            }
        }
    }
    Ok(())
}

fn is_prose(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| PROSE.contains(&ending))
}

/// What a check comes to.
struct Complaints {
    /// One for each thing that is wrong, by file and line.
    sentences: Vec<String>,
    /// Units that are gated.
    gated: usize,
}

/// Compares a registry with the places in files.
fn complaints(
    name: &str,
    text: &str,
    files: &BTreeMap<String, String>,
    known: &Declaration,
) -> Complaints {
    let mut of_registry = Vec::new();
    let Registry { rows } = registry::read(text, &mut of_registry);
    for row in rows.values() {
        if let Err(error) = known.look_up(&row.capability) {
            of_registry.push((row.line, error.to_string()));
        }
    }
    let mut of_files = Vec::new();
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (file, text) in files {
        // An adapter as it is shipped gates nothing; one that was changed is looked at like any other file.
        if [PYTEST, SHELL].contains(&text.as_str()) {
            continue;
        }
        for site in sites::find(text) {
            let mut complain =
                |what: String| of_files.push(format!("{file}:{}: {what}", site.line));
            let Some((unit, capability)) = site.gate else {
                complain(
                    "this does not gate a unit in a form that can be checked: the unit and the capability have to be written out"
                        .to_owned(),
                );
                continue;
            };
            if let Err(error) = known.look_up(&capability) {
                complain(error.to_string());
            }
            let key = (file.clone(), unit.clone());
            match rows.get(&key) {
                None => complain(format!(
                    "{unit} is gated on {capability} without being declared in {name}"
                )),
                Some(row) if row.capability != capability => complain(format!(
                    "{unit} is gated on {capability}, and line {} of {name} declares {}",
                    row.line, row.capability
                )),
                Some(_) => {}
            }
            if let Some(first) = found.get(&key) {
                complain(format!(
                    "{unit} is gated a second time, first in line {first}"
                ));
            } else {
                found.insert(key, site.line);
            }
        }
    }
    for ((file, unit), row) in &rows {
        if !found.contains_key(&(file.clone(), unit.clone())) {
            let what = if files.contains_key(file) {
                format!(
                    "{unit} is declared to need {}, and {file} does not gate it",
                    row.capability
                )
            } else {
                format!("{unit} is declared to be in {file}, which is no file that was searched")
            };
            of_registry.push((row.line, what));
        }
    }
    of_registry.sort();
    let of_registry = of_registry
        .into_iter()
        .map(|(line, what)| format!("{name}:{line}: {what}"));
    Complaints {
        sentences: of_registry.chain(of_files).collect(),
        gated: found.len(),
    }
}
