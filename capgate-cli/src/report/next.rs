//! What a reviewer does next: in words, and as the line that accepts what was found, to be copied into a shell.

use std::path::Path;

use capgate_common::{
    compare::{Finding, Reason},
    contract, escapes,
    event::KIND_NAMES,
    ledger, netpattern,
    outcome::{LOST_INTERRUPTED, LOST_LEASE},
    verdict::Verdict,
};

use super::{Subject, phrase::Phrase};
use crate::shown::{shell_word, shown};

/// Names that a line gives one by one; more of them are accepted together, by `--writes`.
const MOST_NAMES: usize = 12;

/// The files of a run as a reader's shell is given them, in the job's root directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The ledger.
    ledger: String,
    /// The contract; `None` for the one that `accept` takes by itself.
    contract: Option<String>,
}

impl Files {
    /// A ledger and the contract's file in the work tree. What lies in the root is named from there, since a reader has the root
    /// elsewhere.
    pub(crate) fn new(root: &Path, ledger: &Path, contract: Option<&Path>) -> Self {
        let text = |path: &Path| {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let inside = absolute.strip_prefix(root).map(Path::to_owned);
            shown(inside.unwrap_or(absolute))
        };
        Self {
            ledger: text(ledger),
            contract: contract
                .map(text)
                .filter(|path| path != contract::DEFAULT_PATH),
        }
    }
}

/// What a reviewer does next about one finding.
pub(super) fn action(finding: &Finding) -> Phrase {
    match finding {
        Finding::Reach { .. } => Phrase::words(
            "find the test in the chain of processes: it must not get that far; what lets it is in its environment (",
        )
        .and_name("seal_env")
        .and(") or on the host; nobody can accept this"),
        Finding::CpuKill { .. } => Phrase::words(
            "find out whether it would ever have ended; if it is meant to take this long, record one that ends by itself \
             and accept its CPU time",
        ),
        Finding::Cpu { cpu_sec, .. } => {
            Phrase::words("find out what became slower; if the work grew, a ")
                .and_name("cpu_budget")
                .and(format!(
                    " of {} s leaves head room",
                    contract::budget_for(*cpu_sec)
                ))
        }
        Finding::JobFailed { .. } => Phrase::words(
            "see the job's own output; what else it did is judged all the same",
        ),
        Finding::Incomplete { reason } => incomplete(reason),
        Finding::Net { .. } => Phrase::words(
            "find out what the program connects for; if the job is meant to, accept the destination",
        ),
        Finding::Writes { .. } => Phrase::words(
            "look at each name; if the job is meant to write it, accept it; cover names that move with ",
        )
        .and_name("ignore_writes"),
        Finding::Execs { .. } => Phrase::words(
            "find out who starts the program; if the job is meant to, accept it",
        ),
        Finding::Escapes { entry } => match escapes::acceptable_as(entry) {
            Some(name) => Phrase::words("find out why; if a human accepts the blind spot, add ")
                .and_name(name)
                .and(" to ")
                .and_name("allow_unseen")
                .and(" of the contract"),
            None => Phrase::words("find out why: this can not be accepted by a contract"),
        },
        Finding::Tests { .. } => {
            Phrase::words("find out which tests are missing; if that is meant, change ")
                .and_name("tests")
                .and(" of the contract by hand")
        }
    }
}

fn incomplete(reason: &Reason) -> Phrase {
    match reason {
        Reason::Lost { kind, .. } if kind == LOST_INTERRUPTED || kind == LOST_LEASE => {
            Phrase::words("run it again and let it end by itself")
        }
        // The kernel counts what a full ring had no room for under the record's kind.
        Reason::Lost { kind, .. } if KIND_NAMES.contains(&kind.as_str()) => {
            Phrase::words("run it again; if it happens again raise ")
                .and_name("ring_bytes")
                .and(" in ")
                .and_name("/etc/capgate/capgated.toml")
                .and(", or split the job")
        }
        Reason::Lost { kind, .. } => Phrase::words("look up ")
            .and_name(kind)
            .and(" in docs/limits.md: it says what the job did that cannot be told, and what to do instead"),
        Reason::Unseen { name } => Phrase::words("if a human accepts that blind spot, add ")
            .and_name(name)
            .and(" to ")
            .and_name("allow_unseen")
            .and(" of the contract"),
        Reason::NotRaceFree => Phrase::words("run it where the ")
            .and_name("fentry")
            .and(" probe set loads, or drop ")
            .and_name("require_race_free")
            .and(" from the contract"),
        Reason::NotWatched => {
            Phrase::words("run the job again under this contract, so that it is watched")
        }
    }
}

/// The line that accepts what belongs to one row of the table; `None` when there is nothing that `accept` would take.
pub(super) fn accept_line(subject: &Subject<'_>, verdict: Verdict) -> Option<String> {
    let findings = &subject.judgement.findings;
    if !findings.iter().all(leaves_a_choice) {
        return None;
    }
    let mut options = String::new();
    for finding in findings.iter().filter(|it| it.verdict() == verdict) {
        match finding {
            Finding::Net { entry } if netpattern::permitting(entry).is_some() => {
                push(&mut options, "--net", entry);
            }
            Finding::Execs { entry } => push(&mut options, "--exec", entry),
            Finding::Cpu { .. } => options.push_str(" --cpu"),
            Finding::Writes { names, .. } => {
                let names = names
                    .iter()
                    .flat_map(|it| it.added.iter().chain(&it.removed));
                let names: Vec<&String> = names.collect();
                if (1..=MOST_NAMES).contains(&names.len()) {
                    for name in names {
                        push(&mut options, "--write", name);
                    }
                } else {
                    options.push_str(" --writes");
                }
            }
            _ => {}
        }
    }
    (!options.is_empty()).then(|| format!("{}{options}", command(subject)))
}

/// Whether `accept` takes anything of a ledger with this finding.
fn leaves_a_choice(finding: &Finding) -> bool {
    match finding {
        Finding::Reach { .. }
        | Finding::CpuKill { .. }
        | Finding::JobFailed { .. }
        | Finding::Incomplete { .. } => false,
        Finding::Escapes { entry } => escapes::acceptable_as(entry).is_some(),
        _ => true,
    }
}

fn command(subject: &Subject<'_>) -> String {
    match (subject.files, subject.job) {
        (Some(Files { ledger, contract }), _) => {
            let mut line = format!("capgate accept {}", path_word(ledger));
            if let Some(contract) = contract {
                line.push(' ');
                line.push_str(&path_word(contract));
            }
            line
        }
        // Of a stored job the ledger is fetched first.
        (None, Some(job)) => format!(
            "capgate show {} --ledger >{name} && capgate accept {name}",
            shell_word(job),
            name = ledger::FILE_NAME
        ),
        (None, None) => format!("capgate accept {}", ledger::FILE_NAME),
    }
}

fn push(options: &mut String, option: &str, value: &str) {
    options.push(' ');
    options.push_str(option);
    // Else it would be taken for an option.
    options.push(if value.starts_with('-') { '=' } else { ' ' });
    options.push_str(&shell_word(value));
}

fn path_word(path: &str) -> String {
    if path.starts_with('-') {
        shell_word(&format!("./{path}"))
    } else {
        shell_word(path)
    }
}
