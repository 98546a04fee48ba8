//! What differs between two contracts, or two ledgers: key by key, member by member.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    contract::{CompareWrites, Contract},
    ledger::Ledger,
    suite::{Pins, Suite},
};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// A list has a member more.
    Added {
        /// The list.
        key: &'static str,
        /// The member.
        member: String,
    },
    /// A list has a member less.
    Removed {
        /// The list.
        key: &'static str,
        /// The member.
        member: String,
    },
    /// A value is another one.
    Value {
        /// Which value.
        key: &'static str,
        /// The old one; `None` when there was none.
        from: Option<String>,
        /// The new one; `None` when there is none.
        to: Option<String>,
    },
}

impl Change {
    /// The key that it is about.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Added { key, .. } | Self::Removed { key, .. } | Self::Value { key, .. } => key,
        }
    }
}

/// What a contract becomes when another one takes its place. In the order of the documentation; empty when both say the same.
pub fn between_contracts(old: &Contract, new: &Contract) -> Vec<Change> {
    let mut changes = Changes::default();
    let net = |contract: &Contract| -> BTreeSet<String> {
        contract
            .allow_net
            .iter()
            .map(|pattern| pattern.text().to_owned())
            .collect()
    };
    changes.members("allow_net", &net(old), &net(new));
    changes.value("cpu_budget", &old.cpu_budget, &new.cpu_budget);
    changes.value("writes", &old.writes, &new.writes);
    changes.list(
        "write_paths",
        old.write_paths.as_ref(),
        new.write_paths.as_ref(),
    );
    changes.value(
        "compare_writes",
        word(old.compare_writes),
        word(new.compare_writes),
    );
    let set = |list: &Vec<String>| -> BTreeSet<String> { list.iter().cloned().collect() };
    changes.members(
        "ignore_writes",
        &set(&old.ignore_writes),
        &set(&new.ignore_writes),
    );
    changes.value(
        "ignore_gitignored",
        &old.ignore_gitignored,
        &new.ignore_gitignored,
    );
    changes.members("scratch", &set(&old.scratch), &set(&new.scratch));
    let exec = |contract: &Contract| contract.allow_exec.as_ref().map(set);
    changes.list("allow_exec", exec(old).as_ref(), exec(new).as_ref());
    changes.members("allow_unseen", &old.allow_unseen, &new.allow_unseen);
    changes.value(
        "require_race_free",
        &old.require_race_free,
        &new.require_race_free,
    );
    changes.value("enforce", &old.enforce, &new.enforce);
    let table = |contract: &Contract| -> BTreeSet<String> {
        let table = contract.capabilities.iter().flatten();
        table
            .map(|(name, meaning)| format!("{name}: {meaning}"))
            .collect()
    };
    changes.members("capabilities", &table(old), &table(new));
    changes.members("requires", &old.requires, &new.requires);
    let pins = |contract: &Contract| -> BTreeSet<String> {
        let pins = contract.tests.iter();
        pins.map(
            |Pins {
                 junit,
                 run_min,
                 skipped,
             }| { format!("junit {junit}, run_min {run_min}, skipped {skipped}") },
        )
        .collect()
    };
    changes.members("tests", &pins(old), &pins(new));
    fn texts<T: ToString>(list: &[T]) -> BTreeSet<String> {
        list.iter().map(ToString::to_string).collect()
    }
    changes.members("seal_env", &texts(&old.seal_env), &texts(&new.seal_env));
    changes.members("refuse", &texts(&old.refuse), &texts(&new.refuse));
    changes.value("refuse_shims", &old.refuse_shims, &new.refuse_shims);
    changes.0
}

/// What one run did that another did not: the columns, and how far they can be trusted. CPU seconds are not compared: they are
/// never the same twice.
pub fn between_ledgers(old: &Ledger, new: &Ledger) -> Vec<Change> {
    let (was, is) = (&old.recording, &new.recording);
    let mut changes = Changes::default();
    changes.members("net", &was.net, &is.net);
    changes.members("write_paths", &was.write_paths, &is.write_paths);
    changes.members("execs", &was.execs, &is.execs);
    changes.members("escapes", &was.escapes, &is.escapes);
    let absent =
        |suite: &Suite| -> BTreeSet<String> { suite.absent.iter().flatten().cloned().collect() };
    changes.members("absent", &absent(&was.suite), &absent(&is.suite));
    let skips = |suite: &Suite| -> BTreeSet<String> {
        let skips = suite.skips.iter();
        skips
            .flat_map(|(name, units)| units.iter().map(move |unit| format!("{name}: {unit}")))
            .collect()
    };
    changes.members("skips", &skips(&was.suite), &skips(&is.suite));
    changes.list("reaches", was.reaches.as_ref(), is.reaches.as_ref());
    changes.value("complete", &old.complete, &new.complete);
    changes.members("unseen", &was.coverage.unseen, &is.coverage.unseen);
    changes.0
}

fn word(how: CompareWrites) -> &'static str {
    match how {
        CompareWrites::Exact => "exact",
        CompareWrites::Within => "within",
    }
}

/// Differences as they are found.
#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn members(&mut self, key: &'static str, old: &BTreeSet<String>, new: &BTreeSet<String>) {
        let removed = old.difference(new).map(|member| Change::Removed {
            key,
            member: member.clone(),
        });
        let added = new.difference(old).map(|member| Change::Added {
            key,
            member: member.clone(),
        });
        self.0.extend(removed.chain(added));
    }

    /// A list that may be absent, which is not the same as an empty one.
    fn list(
        &mut self,
        key: &'static str,
        old: Option<&BTreeSet<String>>,
        new: Option<&BTreeSet<String>>,
    ) {
        let presence = |list: Option<&BTreeSet<String>>| list.map(|_| "present".to_owned());
        if old.is_some() != new.is_some() {
            self.0.push(Change::Value {
                key,
                from: presence(old),
                to: presence(new),
            });
        }
        let none = BTreeSet::new();
        self.members(key, old.unwrap_or(&none), new.unwrap_or(&none));
    }

    fn value<T: PartialEq + ToString + ?Sized>(&mut self, key: &'static str, old: &T, new: &T) {
        if old != new {
            self.0.push(Change::Value {
                key,
                from: Some(old.to_string()),
                to: Some(new.to_string()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Change, between_contracts};
    use crate::{
        contract::Contract,
        ledger::{EMPTY_DIGEST, digest},
    };

    fn contract(keys: &Value) -> Contract {
        let mut contract = json!({ "allow_net": [], "cpu_budget": 30, "writes": EMPTY_DIGEST });
        for (key, value) in keys.as_object().expect("keys") {
            contract[key] = value.clone();
        }
        Contract::from_json(contract.to_string().as_bytes()).expect("a contract")
    }

    fn check(old: &Value, new: &Value, expect: &[&str]) {
        let found: Vec<String> = between_contracts(&contract(old), &contract(new))
            .iter()
            .map(|change| match change {
                Change::Added { key, member } => format!("+ {key} {member}"),
                Change::Removed { key, member } => format!("- {key} {member}"),
                Change::Value { key, from, to } => format!(
                    "{key} {} {}",
                    from.as_deref().unwrap_or("none"),
                    to.as_deref().unwrap_or("none")
                ),
            })
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn each_key_tells_what_it_gained_and_lost() {
        check(&json!({}), &json!({}), &[]);
        check(
            &json!({"allow_net": ["192.0.2.1:1", "192.0.2.1:2"]}),
            &json!({"allow_net": ["192.0.2.1:2", "192.0.2.1:3"], "cpu_budget": 60}),
            &[
                "- allow_net 192.0.2.1:1",
                "+ allow_net 192.0.2.1:3",
                "cpu_budget 30 60",
            ],
        );
        let a = digest(&["a".to_owned()].into());
        check(
            &json!({}),
            &json!({"writes": a, "write_paths": ["a"], "compare_writes": "within"}),
            &[
                &format!("writes {EMPTY_DIGEST} {a}"),
                "write_paths none present",
                "+ write_paths a",
                "compare_writes exact within",
            ],
        );
        check(
            &json!({"ignore_writes": ["x/*"], "scratch": ["s"], "allow_unseen": ["docker"], "allow_exec": ["/bin/sh"]}),
            &json!({
                "ignore_gitignored": true, "require_race_free": true, "seal_env": ["AWS_*"], "refuse": ["exec:az"], "refuse_shims": true,
            }),
            &[
                "- ignore_writes x/*",
                "ignore_gitignored false true",
                "- scratch s",
                "allow_exec present none",
                "- allow_exec /bin/sh",
                "- allow_unseen docker",
                "require_race_free false true",
                "+ seal_env AWS_*",
                "+ refuse exec:az",
                "refuse_shims false true",
            ],
        );
    }

    #[test]
    fn the_order_of_members_is_no_difference() {
        check(
            &json!({"ignore_writes": ["x/*", "y/*"]}),
            &json!({"ignore_writes": ["y/*", "x/*"]}),
            &[],
        );
    }
}
