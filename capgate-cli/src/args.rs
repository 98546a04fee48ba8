//! The command line, and nothing else.

use std::{
    ffi::{OsStr, OsString},
    os::fd::RawFd,
    path::PathBuf,
};

use capgate_common::{contract, event, ledger, protocol};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};

/// This very program, even when its file has been replaced since it started.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";
/// The hidden step that enters the job and becomes the command.
pub(crate) const ENTER: &str = "__enter";
/// The hidden process that reports signals to the group.
pub(crate) const WITNESS: &str = "__witness";

/// Records what a job does on this host, and gates it on a contract.
#[derive(Debug, Parser)]
#[command(
    name = "capgate",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 120 the job did what its contract does not allow, 121 the recording is not complete, \
                  124 killed at the CPU budget, 125 capgate itself failed, 126 and 127 the command could not be run, \
                  128+N it died of signal N; otherwise the command's own."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command as a recorded job and gate it on its contract
    #[command(
        after_help = "Example: capgate run --label nightly -- pytest -q\n         \
        capgate run --enforce -- pytest -q\n         capgate run --no-network -- make check\n\n\
        The command sees its own arguments, environment, working directory, terminal, descriptors, limits and signals as \
        without capgate. The human report goes to stderr after the command has ended; the other formats go to stdout, or \
        into a file with --report."
    )]
    Run(RunArgs),
    /// Write a first contract, from runs of a command or from recorded ledgers
    #[command(after_help = "Example: capgate init --runs 3 -- pytest -q\n\n\
        The command runs here, several times, so that names which move from run to run are seen: a pattern is proposed for them, \
        with the reason for it. With --from the contract is made of ledgers that `capgate run --record` left, on the runner for \
        instance. Connections are not allowed unless --allow-seen says so. Read what is written before you commit it.")]
    Init(InitArgs),
    /// Compare a ledger with a contract
    #[command(
        after_help = "Example: capgate check tests/capability.actual.json tests/capability.ledger.json"
    )]
    Check(CheckArgs),
    /// Show what differs between two ledgers, two contracts, or a ledger and a contract
    #[command(
        after_help = "Example: capgate diff main.json capability.actual.json --evidence evidence.json\n\n\
        Exits with 0 when nothing differs, with 1 when something does."
    )]
    Diff(DiffArgs),
    /// Copy reviewed entries of a ledger into the contract
    #[command(
        after_help = "Example: capgate accept tests/capability.actual.json --write build/report.html --net 192.0.2.1:443\n\n\
        Changes nothing else in the contract's text, and prints the lines for the pull request."
    )]
    Accept(AcceptArgs),
    /// List jobs, running and finished
    #[command(after_help = "Example: capgate ps --json")]
    Ps(PsArgs),
    /// List finished jobs, the latest first
    #[command(after_help = "Example: capgate log --label nightly -n 20")]
    Log(LogArgs),
    /// Write the report of a ledger's file again, in another format for instance
    #[command(
        after_help = "Example: capgate report tests/capability.actual.json --evidence evidence.json --format markdown\n\n\
        With --contract the ledger is judged anew; without, the report says what was recorded. A stored job has `capgate show`. \
        Exits with 0 whatever the report says: `capgate check` is the one that gates."
    )]
    Report(ReportArgs),
    /// Follow what a job does
    #[command(after_help = "Example: capgate tail 3f9a1c --kind inet --kind exec")]
    Tail(TailArgs),
    /// Show the report of a finished job
    #[command(after_help = "Example: capgate show 3f9a1c --evidence")]
    Show(ShowArgs),
    /// Kill the processes of a running job; it is sealed as interrupted
    #[command(after_help = "Example: capgate stop 3f9a1c")]
    Stop(StopArgs),
    /// Show what the daemon is and does
    #[command(after_help = "Example: capgate status --json")]
    Status(StatusArgs),
    /// Gate the units of a suite on what a host is declared to lack
    #[command(
        after_help = "Example: capgate capability require docker --unit test_images\n\n\
        Nothing is probed: what is not declared absent is there, by the operator's `absent` in capgated.toml or by CAPGATE_ABSENT \
        in the environment, separated by commas."
    )]
    Capability(CapabilityArgs),
    /// Say whether this host can record jobs, and what to do about what is missing
    #[command(
        after_help = "Example: capgate doctor\n\nExits with 0 when a job can be recorded, with 1 when not."
    )]
    Doctor(DoctorArgs),
    /// Write a completion script for a shell
    #[command(after_help = "Example: capgate completions bash > /etc/bash_completion.d/capgate")]
    Completions(CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = "Example: capgate man --dir /usr/local/share/man/man1")]
    Man(ManArgs),
}

/// What the client starts itself again for. Not part of the command line that a user sees.
#[derive(Debug, Parser)]
#[command(name = "capgate", disable_help_subcommand = true)]
pub(crate) enum Step {
    /// Enter a job and become the command
    #[command(name = ENTER)]
    Enter(EnterArgs),
    /// Report the signals that reach the process group
    #[command(name = WITNESS)]
    Witness,
}

impl Step {
    /// Whether a first argument asks for a step.
    pub(crate) fn is_asked_for(argument: &OsStr) -> bool {
        argument == ENTER || argument == WITNESS
    }
}

/// Which daemon to talk to.
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = protocol::SOCKET_PATH)]
    pub(crate) socket: PathBuf,
}

/// Who records a job.
#[derive(Debug, Args)]
pub(crate) struct Recorder {
    /// Start a private daemon for this job, by sudo when needed
    #[arg(long, conflicts_with = "socket")]
    pub(crate) local: bool,
    /// Force a probe set of the private daemon
    #[arg(long, value_name = "SET", requires = "local", value_parser = [ledger::ProbeSet::Tracepoint.word(), ledger::ProbeSet::Fentry.word()])]
    pub(crate) probe_set: Option<String>,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The contract [default: tests/capability.ledger.json in the root]
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
    /// Take the contract from this commit: a branch, tag or hash, or `A...B` for a merge base
    #[arg(long, value_name = "REF")]
    pub(crate) base: Option<String>,
    /// Where the ledger is written [default: capability.actual.json beside the contract]
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    /// Write the evidence too: who did what, when first, how often
    #[arg(long, value_name = "FILE")]
    pub(crate) evidence: Option<PathBuf>,
    /// The directory that names in the ledger are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Record and do not gate
    #[arg(long)]
    pub(crate) record: bool,
    /// Have the kernel refuse connections that the contract does not allow, as its key `enforce` does
    #[arg(long)]
    pub(crate) enforce: bool,
    /// Have the kernel refuse every connection, but to what the job itself listens on
    #[arg(long, conflicts_with = "enforce")]
    pub(crate) no_network: bool,
    /// Keep the environment variables of this list, `{ "seal_env": [...] }`, from a job that is only recorded
    #[arg(long, value_name = "FILE", requires = "record")]
    pub(crate) seal_only: Option<PathBuf>,
    /// Who records it.
    #[command(flatten)]
    pub(crate) recorder: Recorder,
    /// The report.
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    /// A word that names the job in lists; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For a person at a terminal or in a log
    #[default]
    Human,
    /// For a program
    Json,
    /// For a pull request or a job summary
    Markdown,
    /// Workflow commands that GitHub shows as annotations; the job's summary gets the report in Markdown
    Github,
    /// A code quality report for GitLab
    Gitlab,
    /// JUnit XML: a test case for each column
    Junit,
}

/// How a report is written, and where to.
#[derive(Debug, Args)]
pub(crate) struct Reporting {
    /// How the report is written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Write the report into a file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// `init`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["from", "command"])))]
pub(crate) struct InitArgs {
    /// How often the command is run
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with = "from")]
    pub(crate) runs: u8,
    /// Take recorded ledgers instead of running something
    #[arg(long, value_name = "LEDGER", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Allow the connections that were seen
    #[arg(long)]
    pub(crate) allow_seen: bool,
    /// Write the contract anew where there is one
    #[arg(long)]
    pub(crate) force: bool,
    /// The contract [default: tests/capability.ledger.json in the root]
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
    /// The directory that names in the contract are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Who records it.
    #[command(flatten)]
    pub(crate) recorder: Recorder,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The ledger of a run
    #[arg(value_name = "LEDGER")]
    pub(crate) ledger: PathBuf,
    /// The contract
    #[arg(value_name = "CONTRACT", default_value = contract::DEFAULT_PATH)]
    pub(crate) contract: PathBuf,
    /// Take the contract from this commit: a branch, tag or hash, or `A...B` for a merge base
    #[arg(long, value_name = "REF")]
    pub(crate) base: Option<String>,
    /// The directory that the contract's patterns are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// The report.
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A ledger or a contract
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// Another one
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// The evidence of NEW, as `run --evidence` wrote it: shows who did what, when first and how often
    #[arg(long, value_name = "FILE")]
    pub(crate) evidence: Option<PathBuf>,
    /// The directory that a contract's patterns are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `accept`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["write", "writes", "net", "exec", "cpu"])))]
pub(crate) struct AcceptArgs {
    /// The ledger of a run that somebody looked at
    #[arg(value_name = "LEDGER")]
    pub(crate) ledger: PathBuf,
    /// The contract
    #[arg(value_name = "CONTRACT", default_value = contract::DEFAULT_PATH)]
    pub(crate) contract: PathBuf,
    /// A name, as the report shows it: written from now on if the ledger has it, else not any more; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) write: Vec<String>,
    /// The whole write set
    #[arg(long, conflicts_with = "write")]
    pub(crate) writes: bool,
    /// A destination, as the report shows it; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) net: Vec<String>,
    /// A program, as the report shows it; may be repeated
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) exec: Vec<String>,
    /// The CPU time that was used, with head room
    #[arg(long)]
    pub(crate) cpu: bool,
    /// The evidence of the run: shows who did what is accepted
    #[arg(long, value_name = "FILE")]
    pub(crate) evidence: Option<PathBuf>,
    /// The directory that the contract's patterns are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// `ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) number: usize,
    /// Only jobs with this label; may be repeated, and then all of them are needed
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The ledger of a run
    #[arg(value_name = "LEDGER")]
    pub(crate) ledger: PathBuf,
    /// The evidence of the same run: who did what, when first, how often
    #[arg(long, value_name = "FILE")]
    pub(crate) evidence: Option<PathBuf>,
    /// The contract to judge it by
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
    /// The directory that the contract's patterns are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// The report.
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// `tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// The job, as `capgate ps` shows it
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Only events of this kind; may be repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(&event::KIND_NAMES[1..]))]
    pub(crate) kinds: Vec<String>,
    /// Only what happens from now on
    #[arg(long)]
    pub(crate) no_backlog: bool,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The job, as `capgate ps` shows it
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Print the evidence, as --evidence of `run` writes it
    #[arg(long, conflicts_with_all = ["format", "report", "ledger"])]
    pub(crate) evidence: bool,
    /// Print the ledger, as `run` writes it
    #[arg(long, conflicts_with_all = ["format", "report"])]
    pub(crate) ledger: bool,
    /// The report.
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The job, as `capgate ps` shows it
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Which daemon.
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// `capability`.
#[derive(Debug, Args)]
pub(crate) struct CapabilityArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: CapabilityCommand,
}

/// What to do about capabilities.
#[derive(Debug, Subcommand)]
pub(crate) enum CapabilityCommand {
    /// Ask, for one unit, whether a capability is there
    #[command(
        after_help = "Example: capgate capability require docker --unit test_images || exit\n\n\
        Exits with 0 when the capability is not declared absent, with 75 when it is: the unit is then listed as skipped. Outside a job \
        the contract's file and CAPGATE_ABSENT say what is absent, and nothing is recorded."
    )]
    Require(RequireArgs),
    /// Compare the units that a suite gates with its registry
    #[command(after_help = "Example: capgate capability check --in tests\n\n\
        Exits with 0 when every unit is gated as declared, with 1 and a sentence for each that is not.")]
    Check(CapabilityCheckArgs),
    /// Print an adapter for a suite
    #[command(
        after_help = "Example: capgate capability adapter pytest > tests/capgate_capability.py"
    )]
    Adapter(AdapterArgs),
}

/// `capability require`.
#[derive(Debug, Args)]
pub(crate) struct RequireArgs {
    /// The capability
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The unit that needs it
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: String,
    /// Outside a job: the contract [default: tests/capability.ledger.json in the root]
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
    /// Outside a job: the directory with the contract [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Inside a job: where the daemon listens [default: CAPGATE_SOCKET, else /run/capgate/capgated.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// `capability check`.
#[derive(Debug, Args)]
pub(crate) struct CapabilityCheckArgs {
    /// The registry [default: tests/host-capabilities.tsv in the root]
    #[arg(long, value_name = "FILE")]
    pub(crate) registry: Option<PathBuf>,
    /// The contract [default: tests/capability.ledger.json in the root]
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
    /// Search the files below this directory; may be repeated [default: the registry's directory]
    #[arg(long = "in", value_name = "DIR")]
    pub(crate) within: Vec<PathBuf>,
    /// The directory that files in the registry are relative to [default: the top of the git work tree, else the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// `capability adapter`.
#[derive(Debug, Args)]
pub(crate) struct AdapterArgs {
    /// Which one
    #[arg(value_enum, value_name = "ADAPTER")]
    pub(crate) adapter: Adapter,
}

/// An adapter that is shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Adapter {
    /// A plugin with the marker `capability`
    Pytest,
    /// A function `capability_require`
    Shell,
}

/// `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page for each command into this directory [default: the main page, on stdout]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// The hidden step.
#[derive(Debug, Args)]
pub(crate) struct EnterArgs {
    /// Descriptor of the channel to the client
    #[arg(long)]
    pub(crate) channel: RawFd,
    /// Where the daemon listens
    #[arg(long)]
    pub(crate) socket: PathBuf,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            assert!(
                help.is_some_and(
                    |help| help.contains(&format!("Example: capgate {}", command.get_name()))
                ),
                "{}",
                command.get_name()
            );
        }
    }
}
