//! `capgate accept`: copies what a human has looked at from a ledger into the contract.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, bail};
use capgate_common::{
    address::NetEntry,
    change::{Change, between_contracts},
    compare::{Case, Finding, judge},
    contract::{Contract, budget_for},
    escapes, glob,
    ledger::{self, Ledger},
    netpattern,
    rules::Rules,
};

use crate::{
    args::AcceptArgs,
    base::{Basis, Wanted},
    check::{read_basis, read_ledger, rules},
    diff::read_evidence,
    edit::Text,
    human_only,
    output::Output,
    place, report,
    shown::{harmless, shown},
};

/// Changes the contract's file and prints the lines for the pull request.
///
/// # Errors
/// When this is no place to do so, when a file cannot be used, when something was asked for that the ledger does not have or that
/// nobody can accept. The contract is as it was then.
pub(crate) fn accept(args: &AcceptArgs) -> anyhow::Result<i32> {
    human_only::check("accept anything")?;
    let ledger = read_ledger(&args.ledger)?;
    let evidence = read_evidence(args.evidence.as_deref())?;
    let root = place::root(args.root.as_deref())?;
    let basis = read_basis(&Wanted {
        root: &root,
        path: &args.contract,
        base: None,
        needed: true,
        outputs: &[&args.ledger],
    })?;
    let rules = rules(&basis, &root)?;
    refuse(&ledger, &rules)
        .with_context(|| format!("cannot accept anything of {}", shown(&args.ledger)))?;
    let mut acceptance = Acceptance::new(&basis, &ledger, &rules)?;
    acceptance.take(args)?;
    let text = acceptance.text.finish(&acceptance.contract)?;
    let changes = between_contracts(&basis.contract, &acceptance.contract);
    if changes.is_empty() {
        report::to_stdout("Nothing to accept: the contract says so already.\n")?;
        return Ok(0);
    }
    // Where the contract is a link, the file behind it is what has the text.
    let file = fs::canonicalize(&basis.path)
        .with_context(|| format!("cannot find the contract {}", shown(&basis.path)))?;
    Output::find("contract", &file)?.replace(text.as_bytes())?;
    report::to_stdout(&lines(args, &changes, evidence.as_ref()))?;
    Ok(0)
}

/// Nothing of a ledger counts that does not tell all, or that tells what nobody can accept.
fn refuse(ledger: &Ledger, rules: &Rules) -> anyhow::Result<()> {
    for finding in judge(&Case::of_ledger(ledger, Some(rules))).findings {
        match finding {
            Finding::Incomplete { reason } => bail!(
                "the recording is not complete ({}), so nobody can tell what else the job did; record it again",
                harmless(&reason.to_string())
            ),
            Finding::CpuKill { .. } | Finding::JobFailed { .. } => bail!(
                "the job failed, so it did not do all that it does; take the ledger of one that succeeds"
            ),
            Finding::Reach { entry } => bail!(
                "the job reached for {}, which the contract's `refuse` forbids: nobody can accept that, whatever else is allowed",
                harmless(&entry)
            ),
            Finding::Escapes { entry } if escapes::acceptable_as(&entry).is_none() => bail!(
                "{}, which nobody can accept",
                harmless(&escapes::sentence(&entry))
            ),
            _ => {}
        }
    }
    Ok(())
}

/// A contract on its way.
struct Acceptance<'a> {
    ledger: &'a Ledger,
    rules: &'a Rules,
    contract: Contract,
    /// The names that the contract has so far; `None` when it has only their digest.
    names: Option<BTreeSet<String>>,
    text: Text,
}

impl<'a> Acceptance<'a> {
    fn new(basis: &Basis, ledger: &'a Ledger, rules: &'a Rules) -> anyhow::Result<Self> {
        let contract = basis.contract.clone();
        let none = || (contract.writes == ledger::EMPTY_DIGEST).then(BTreeSet::new);
        Ok(Self {
            names: contract.write_paths.clone().or_else(none),
            contract,
            ledger,
            rules,
            text: Text::new(&basis.text)?,
        })
    }

    fn take(&mut self, args: &AcceptArgs) -> anyhow::Result<()> {
        for destination in &args.net {
            self.net(destination)?;
        }
        for program in &args.exec {
            self.exec(program)?;
        }
        if args.cpu {
            self.cpu();
        }
        if args.writes {
            self.writes()
        } else if args.write.is_empty() {
            Ok(())
        } else {
            self.write(&args.write)
        }
    }

    fn net(&mut self, destination: &str) -> anyhow::Result<()> {
        let Some(destination) = called(&self.ledger.recording.net, destination) else {
            bail!(
                "cannot accept the destination {}: the ledger has none of that name under `net`",
                harmless(destination)
            );
        };
        let Some(pattern) = netpattern::permitting(destination) else {
            bail!(
                "cannot accept the destination {}: no pattern of this version permits it",
                harmless(destination)
            );
        };
        let permitted = destination
            .parse::<NetEntry>()
            .is_ok_and(|entry| !self.rules.net().matching(&entry).is_empty());
        if permitted || self.contract.allow_net.contains(&pattern) {
            return Ok(());
        }
        self.text.add("allow_net", pattern.text(), "")?;
        self.contract.allow_net.push(pattern);
        Ok(())
    }

    fn exec(&mut self, program: &str) -> anyhow::Result<()> {
        let Some(program) = called(&self.ledger.recording.execs, program) else {
            bail!(
                "cannot accept the program {}: the ledger has none of that name under `execs`",
                harmless(program)
            );
        };
        let Some(list) = &mut self.contract.allow_exec else {
            bail!(
                "cannot accept the program {}: the contract has no `allow_exec`, so any program may run",
                harmless(program)
            );
        };
        let pattern = glob::literal(program);
        let permitted = self
            .rules
            .exec()
            .is_some_and(|rules| rules.matches(program));
        if !permitted && !list.contains(&pattern) {
            self.text.add("allow_exec", &pattern, "")?;
            list.push(pattern);
        }
        Ok(())
    }

    fn cpu(&mut self) {
        let used = self.ledger.recording.cpu_sec;
        if used > self.contract.cpu_budget {
            self.contract.cpu_budget = budget_for(used);
            self.text.set_number("cpu_budget", self.contract.cpu_budget);
        }
    }

    /// The names that the ledger has and the contract's patterns do not cover.
    fn recorded(&self) -> BTreeSet<String> {
        let names = self.ledger.recording.write_paths.iter();
        names
            .filter(|name| !self.rules.ignores(name))
            .cloned()
            .collect()
    }

    fn writes(&mut self) -> anyhow::Result<()> {
        let recorded = self.recorded();
        // A contract that lives without names goes on so.
        match self.contract.write_paths.clone() {
            Some(names) => self.become_names(&names, recorded),
            None => {
                self.set_digest(&recorded);
                Ok(())
            }
        }
    }

    fn write(&mut self, wanted: &[String]) -> anyhow::Result<()> {
        let recorded = self.recorded();
        let Some(names) = self.names.clone() else {
            bail!(
                "cannot accept single names: the contract has no `write_paths`, only their digest; accept all with --writes"
            );
        };
        let mut changed = names.clone();
        for name in wanted {
            if let Some(name) = called(&recorded, name) {
                changed.insert(name.clone());
            } else if let Some(name) = called(&names, name) {
                changed.remove(name);
            } else {
                bail!(
                    "cannot accept the name {}: neither the ledger nor the contract has it under `write_paths`; give it as \
                     the report shows it",
                    harmless(name)
                );
            }
        }
        self.become_names(&names, changed)
    }

    fn become_names(
        &mut self,
        names: &BTreeSet<String>,
        changed: BTreeSet<String>,
    ) -> anyhow::Result<()> {
        for name in names.difference(&changed) {
            self.text.remove("write_paths", name)?;
        }
        for name in changed.difference(names) {
            self.text.add("write_paths", name, "writes")?;
        }
        self.set_digest(&changed);
        if self.contract.write_paths.is_some() || &changed != names {
            self.contract.write_paths = Some(changed);
        }
        Ok(())
    }

    fn set_digest(&mut self, names: &BTreeSet<String>) {
        let digest = ledger::digest(names);
        if digest != self.contract.writes {
            self.text.set_string("writes", &digest);
            self.contract.writes = digest;
        }
    }
}

/// The member that a reader calls by this name: its own, or what a report shows of it. No two members are shown alike, since what
/// a report puts in the place of a character holds a backslash alone, and a backslash in a name is written as two.
fn called<'a>(members: &'a BTreeSet<String>, name: &str) -> Option<&'a String> {
    let shown = || members.iter().find(|member| harmless(member) == name);
    members.get(name).or_else(shown)
}

/// What goes into the pull request.
fn lines(
    args: &AcceptArgs,
    changes: &[Change],
    evidence: Option<&capgate_common::evidence::Evidence>,
) -> String {
    // A line of a change begins with its sign, so none of them ends the block.
    format!(
        "Accepted into {}, from {}:\n\n```diff\n{}```\n",
        code(&args.contract),
        code(&args.ledger),
        report::changes(changes, evidence)
    )
}

fn code(path: &Path) -> String {
    format!("`{}`", shown(path).replace('`', r"\x60"))
}
