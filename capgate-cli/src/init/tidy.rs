//! Makes of many drafts of patterns the few that are shown: fit for other machines, without those that others make superfluous.

use std::collections::BTreeMap;

use super::{
    looks::{Host, Look, generalise, merge_stars},
    moving::{Names, Why, compile, parts},
};

/// Patterns in one directory from which on the directory is covered.
const CROWD: usize = 4;

/// A glob without what is this machine's or this user's alone, wherever it stands.
pub(super) fn portable((glob, why): (String, Why), host: &Host) -> (String, Why) {
    let (anchor, parts) = parts(&glob);
    let mut directory = anchor.to_owned();
    for (at, part) in parts.iter().enumerate() {
        if let Some(part) = portable_part(part, host, anchor.is_empty()) {
            let below = at + 1 < parts.len();
            let rest = if below { "/**" } else { "" };
            return (format!("{directory}{part}{rest}"), why);
        }
        directory = format!("{directory}{part}/");
    }
    (glob, why)
}

fn portable_part(part: &str, host: &Host, in_root: bool) -> Option<String> {
    // What is escaped in a glob is no name of a machine.
    if part.contains('[') {
        return None;
    }
    let mut found = false;
    let pieces: Vec<String> = part
        .split('*')
        .map(|piece| match generalise(piece, host, in_root, false) {
            Some((glob, Look::Host | Look::User | Look::Uid)) => {
                found = true;
                glob
            }
            _ => piece.to_owned(),
        })
        .collect();
    found.then(|| merge_stars(&pieces.join("*")))
}

/// Leaves out globs whose names others cover, the later ones first.
pub(super) fn fewest(drafts: Vec<(String, Why)>, all: &Names) -> Vec<(String, Why)> {
    let mut unique: Vec<((String, Why), Vec<&String>)> = Vec::new();
    let mut covering: BTreeMap<&String, usize> = BTreeMap::new();
    for draft in drafts {
        if unique.iter().any(|((glob, _), _)| *glob == draft.0) {
            continue;
        }
        let own = compile(std::slice::from_ref(&draft));
        let names: Vec<&String> = all.iter().filter(|name| own.matches(name)).collect();
        for &name in &names {
            *covering.entry(name).or_default() += 1;
        }
        unique.push((draft, names));
    }
    // Wide ones stay where narrow ones cover nothing else.
    unique.sort_by_key(|(_, names)| names.len());
    let mut kept = Vec::new();
    for (draft, names) in unique {
        if names
            .iter()
            .all(|name| covering.get(name).is_some_and(|&count| count > 1))
        {
            for name in names {
                covering.entry(name).and_modify(|count| *count -= 1);
            }
        } else {
            kept.push(draft);
        }
    }
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    kept
}

/// Many globs in one directory become one for the directory.
pub(super) fn crowds(drafts: Vec<(String, Why)>) -> Vec<(String, Why)> {
    let mut directories: BTreeMap<String, usize> = BTreeMap::new();
    let above = |glob: &str| {
        let named = glob.strip_suffix("/**").unwrap_or(glob);
        let fixed = named.find(['*', '?']).map_or(named, |at| &named[..at]);
        let directory = fixed.rfind('/').map_or("", |at| &fixed[..=at]);
        // Neither the root nor what lies right below `/` or the home.
        let depth = parts(directory).1.len();
        let deep = if directory.starts_with(['/', '~']) {
            depth >= 2
        } else {
            !directory.is_empty()
        };
        deep.then(|| directory.to_owned())
    };
    for directory in drafts.iter().filter_map(|(glob, _)| above(glob)) {
        *directories.entry(directory).or_default() += 1;
    }
    let crowded: Vec<String> = directories
        .into_iter()
        .filter(|(_, count)| *count >= CROWD)
        .map(|(directory, _)| directory)
        .collect();
    let mut merged: Vec<(String, Why)> = Vec::new();
    for (glob, why) in drafts {
        let home = crowded
            .iter()
            .find(|directory| glob.starts_with(*directory));
        let draft = match home {
            Some(directory) => (format!("{directory}**"), Why::Moved),
            None => (glob, why),
        };
        if !merged.iter().any(|(glob, _)| *glob == draft.0) {
            merged.push(draft);
        }
    }
    merged
}
