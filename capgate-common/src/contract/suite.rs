//! The keys about the job's own suite: `capabilities`, `requires` and `tests`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Contract, ContractError, values};
use crate::{
    capability::{self, MAX_CAPABILITIES, MAX_MEANING_BYTES, Table},
    suite::{Pinned, Pins},
};

/// The keys within `tests`.
const PIN_KEYS: [&str; 3] = ["junit", "run_min", "skipped"];

fn object<'a>(
    key: &'static str,
    expected: &str,
    value: &'a Value,
) -> Result<&'a Map<String, Value>, ContractError> {
    value
        .as_object()
        .ok_or_else(|| values::wrong(key, expected, value))
}

pub(super) fn capabilities(key: &'static str, value: &Value) -> Result<Table, ContractError> {
    let object = object(key, "an object of names and meanings", value)?;
    if object.len() > MAX_CAPABILITIES {
        let problem = format!("{} names are more than {MAX_CAPABILITIES}", object.len());
        return Err(ContractError::value(key, problem));
    }
    let mut table = Table::new();
    for (name, meaning) in object {
        capability::check_name(name)
            .map_err(|error| ContractError::value(key, error.to_string()))?;
        let meaning = meaning.as_str().map(str::trim).filter(|meaning| {
            !meaning.is_empty()
                && meaning.len() <= MAX_MEANING_BYTES
                && !meaning.contains(char::is_control)
        });
        let Some(meaning) = meaning else {
            let problem = format!(
                "`{name}` needs its meaning in one line of at most {MAX_MEANING_BYTES} bytes"
            );
            return Err(ContractError::value(key, problem));
        };
        table.insert(name.clone(), meaning.to_owned());
    }
    Ok(table)
}

pub(super) fn requires(
    key: &'static str,
    value: &Value,
) -> Result<BTreeSet<String>, ContractError> {
    Ok(values::texts(key, value)?.into_iter().collect())
}

pub(super) fn tests(key: &'static str, value: &Value) -> Result<Pins, ContractError> {
    let object = object(
        key,
        "an object with `junit`, `run_min` and `skipped`",
        value,
    )?;
    if let Some(unknown) = object.keys().find(|it| !PIN_KEYS.contains(&it.as_str())) {
        let problem = format!(
            "unknown key `{unknown}`; the keys are {}",
            PIN_KEYS.join(", ")
        );
        return Err(ContractError::value(key, problem));
    }
    let part = |name: &str| {
        object
            .get(name)
            .ok_or_else(|| ContractError::value(key, format!("there is no `{name}`")))
    };
    Ok(Pins {
        junit: file(key, part("junit")?)?,
        run_min: count(key, "run_min", part("run_min")?)?,
        skipped: pinned(key, part("skipped")?)?,
    })
}

/// A file inside the root, by a path without any way out.
fn file(key: &'static str, value: &Value) -> Result<String, ContractError> {
    let is_plain = |path: &&str| {
        path.len() <= super::MAX_PATTERN_BYTES
            && !path.contains(char::is_control)
            && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    let path = value.as_str().filter(is_plain);
    path.map(str::to_owned).ok_or_else(|| {
        ContractError::value(
            key,
            "`junit` has to be the path of a file relative to the root, without `.` and `..`",
        )
    })
}

fn count(key: &'static str, name: &str, value: &Value) -> Result<u64, ContractError> {
    value.as_u64().ok_or_else(|| {
        ContractError::value(key, format!("`{name}` has to be a whole number of tests"))
    })
}

fn pinned(key: &'static str, value: &Value) -> Result<Pinned, ContractError> {
    let Some(object) = value.as_object() else {
        return count(key, "skipped", value)
            .map(Pinned::Always)
            .map_err(|_| {
                let problem =
                    "`skipped` has to be a whole number of tests, or one for each capability";
                ContractError::value(key, problem)
            });
    };
    let counts: Result<BTreeMap<String, u64>, ContractError> = object
        .iter()
        .map(|(name, value)| Ok((name.clone(), count(key, name, value)?)))
        .collect();
    counts.map(Pinned::Absent)
}

/// Every name that is used is one of the table.
pub(super) fn check_names(contract: &Contract) -> Result<(), ContractError> {
    let nothing = Table::new();
    let table = contract.capabilities.as_ref().unwrap_or(&nothing);
    let pinned = contract
        .tests
        .iter()
        .filter_map(|pins| match &pins.skipped {
            Pinned::Always(_) => None,
            Pinned::Absent(counts) => Some(counts),
        });
    let used = contract.requires.iter().map(|name| ("requires", name));
    let used = used.chain(pinned.flat_map(BTreeMap::keys).map(|name| ("tests", name)));
    for (key, name) in used {
        if !table.contains_key(name) {
            let unknown = capability::CapabilityError::Unknown {
                name: name.clone(),
                known: table.keys().cloned().collect(),
            };
            return Err(ContractError::value(key, unknown.to_string()));
        }
    }
    Ok(())
}
