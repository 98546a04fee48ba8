//! Capabilities of a host, by name: which ones a contract knows and requires, and which ones are declared absent.
//!
//! Nothing is ever probed. What is not declared absent is there, and a host that turns out to lack it fails the job.

use std::collections::{BTreeMap, BTreeSet};

use crate::{contract::Contract, pathform::neutralise};

/// The client's environment variable that declares capabilities absent, separated by commas.
pub const VARIABLE: &str = "CAPGATE_ABSENT";
/// The environment variable that tells a job with a table of capabilities where its daemon listens.
pub const SOCKET_VARIABLE: &str = "CAPGATE_SOCKET";
/// Exit code of `capgate capability require` for a unit that does not run (`EX_TEMPFAIL` of sysexits.h).
pub const EXIT_ABSENT: i32 = 75;
/// Most capabilities of one contract, and most names of one declaration.
pub const MAX_CAPABILITIES: usize = 256;
/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest meaning, in bytes.
pub const MAX_MEANING_BYTES: usize = 200;
/// Longest name of a unit, in bytes.
pub const MAX_UNIT_BYTES: usize = 512;
/// Most units that one job may skip; those beyond count as lost.
pub const MAX_SKIPS: usize = 10_000;
/// What a job that is recorded without a contract gets for a meaning.
pub const NO_MEANING: &str = "not known, since there is no contract";

/// Capabilities by name, each with its meaning in one line.
pub type Table = BTreeMap<String, String>;

/// Why a declaration cannot be used. One sentence each.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// Not a name.
    #[error("`{}` is no name of a capability: {MAX_NAME_BYTES} of a-z, 0-9, `-` and `_` at most", neutralise(.0))]
    Name(String),
    /// More than [`MAX_CAPABILITIES`].
    #[error("{0} capabilities are declared absent, more than {MAX_CAPABILITIES}")]
    TooMany(usize),
    /// A name that the contract's table does not have.
    #[error("no capability is called `{}`; {}", neutralise(name), Known(known))]
    Unknown {
        /// The name.
        name: String,
        /// The names of the table.
        known: Vec<String>,
    },
    /// Not a name of a unit.
    #[error(
        "a unit's name has 1 to {MAX_UNIT_BYTES} bytes and no control characters, unlike `{}`",
        neutralise(.0)
    )]
    Unit(String),
}

/// The names of a table, in a sentence.
struct Known<'a>(&'a [String]);

impl std::fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("the contract's `capabilities` has none"),
            known => write!(f, "the contract's `capabilities` has {}", known.join(", ")),
        }
    }
}

/// Whether a text is a capability's name.
///
/// # Errors
/// When it is not.
pub fn check_name(name: &str) -> Result<(), CapabilityError> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_word) {
        return Err(CapabilityError::Name(name.to_owned()));
    }
    Ok(())
}

/// Whether a text is a unit's name: what a suite calls one of its tests.
///
/// # Errors
/// When it is not.
pub fn check_unit(unit: &str) -> Result<(), CapabilityError> {
    if unit.is_empty() || unit.len() > MAX_UNIT_BYTES || unit.chars().any(char::is_control) {
        return Err(CapabilityError::Unit(unit.to_owned()));
    }
    Ok(())
}

/// The names of a declaration.
///
/// # Errors
/// When one is not a name, or there are too many.
pub fn names<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeSet<String>, CapabilityError> {
    let mut declared = BTreeSet::new();
    for name in names {
        check_name(name)?;
        declared.insert(name.to_owned());
    }
    if declared.len() > MAX_CAPABILITIES {
        return Err(CapabilityError::TooMany(declared.len()));
    }
    Ok(declared)
}

/// The names in a value of [`VARIABLE`].
///
/// # Errors
/// As [`names`].
pub fn parse(value: &str) -> Result<BTreeSet<String>, CapabilityError> {
    names(
        value
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty()),
    )
}

/// What is declared absent for one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declaration {
    /// The contract's table; `None` when there is no contract, and then any name will do.
    table: Option<Table>,
    absent: BTreeSet<String>,
}

impl Declaration {
    /// Joins what an operator declares for all jobs of a host, of which the names that this contract does not know do not count,
    /// with what the client declares for this one, of which each has to be known.
    ///
    /// # Errors
    /// When the client declares a name that the contract's table does not have.
    pub fn new(
        contract: Option<&Contract>,
        operator: &BTreeSet<String>,
        client: &BTreeSet<String>,
    ) -> Result<Self, CapabilityError> {
        let mut declaration = Self {
            table: contract.map(|contract| contract.capabilities.clone().unwrap_or_default()),
            absent: BTreeSet::new(),
        };
        for name in client {
            declaration.meaning(name)?;
        }
        let known = |name: &&String| declaration.meaning(name).is_ok();
        let absent = operator.iter().filter(known).chain(client);
        declaration.absent = absent.cloned().collect();
        Ok(declaration)
    }

    /// Whether the contract has a table of capabilities.
    pub fn has_table(&self) -> bool {
        self.table.as_ref().is_some_and(|table| !table.is_empty())
    }

    /// What is absent, of the names that the contract knows.
    pub fn absent(&self) -> &BTreeSet<String> {
        &self.absent
    }

    /// The meaning of a capability, and whether it is absent.
    ///
    /// # Errors
    /// When nothing is called so.
    pub fn look_up(&self, name: &str) -> Result<(&str, bool), CapabilityError> {
        Ok((self.meaning(name)?, self.absent.contains(name)))
    }

    fn meaning(&self, name: &str) -> Result<&str, CapabilityError> {
        match &self.table {
            None => check_name(name).map(|()| NO_MEANING),
            Some(table) => match table.get(name) {
                Some(meaning) => Ok(meaning),
                None => Err(CapabilityError::Unknown {
                    name: name.to_owned(),
                    known: table.keys().cloned().collect(),
                }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(capabilities: &str) -> Contract {
        let text = format!(
            "{{\"allow_net\": [], \"cpu_budget\": 1, \"writes\": \"{}\"{capabilities}}}",
            crate::ledger::EMPTY_DIGEST
        );
        Contract::from_json(text.as_bytes()).expect("a contract")
    }

    const TABLE: &str =
        r#", "capabilities": {"docker": "a docker daemon", "ipv6": "IPv6 on loopback"}"#;

    fn check(capabilities: &str, operator: &str, client: &str, expect: Result<&str, &str>) {
        let declaration = Declaration::new(
            Some(&contract(capabilities)),
            &parse(operator).expect("names"),
            &parse(client).expect("names"),
        );
        let got = declaration
            .map(|it| it.absent().iter().cloned().collect::<Vec<_>>().join(" "))
            .map_err(|error| error.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn both_declarations_count() {
        check(TABLE, "", "", Ok(""));
        check(TABLE, "docker", "", Ok("docker"));
        check(TABLE, "docker", "ipv6 , docker", Ok("docker ipv6"));
    }

    #[test]
    fn an_operators_name_need_not_be_known_and_a_clients_must() {
        check(TABLE, "tmux", "", Ok(""));
        check(
            TABLE,
            "",
            "tmux",
            Err("no capability is called `tmux`; the contract's `capabilities` has docker, ipv6"),
        );
        check(
            "",
            "docker",
            "docker",
            Err("no capability is called `docker`; the contract's `capabilities` has none"),
        );
    }

    #[test]
    fn without_a_contract_any_name_will_do() {
        let client = parse("tmux").expect("names");
        let declaration = Declaration::new(None, &BTreeSet::new(), &client).expect("no error");
        assert_eq!(declaration.look_up("tmux"), Ok((NO_MEANING, true)));
        assert_eq!(declaration.look_up("docker"), Ok((NO_MEANING, false)));
        assert!(declaration.look_up("Docker").is_err());
    }

    #[test]
    fn names_and_units_are_checked() {
        for name in ["", "Docker", "a b", "a,b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for unit in ["", "a\nb", "\u{85}", &"x".repeat(513)] {
            assert!(check_unit(unit).is_err(), "{unit:?}");
        }
        assert!(check_unit("tests/test_a.py::test_é[a b]").is_ok());
        assert!(parse("docker;ipv6").is_err());
    }
}
