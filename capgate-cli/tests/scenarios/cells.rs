//! Where the suite can run, and what the environment says about it.

use std::{env, ffi::OsString, path::PathBuf};

use capgate_common::ledger::ProbeSet;

/// A machine of the kernel matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The machine that tests are run on.
    Native,
    /// Debian 12's kernel for x86-64, with busybox and nothing else.
    X86V6_1,
    /// Debian 12's newer kernel for x86-64, with busybox and nothing else.
    X86V6_12,
    /// The same release for arm64, with busybox and nothing else.
    Arm64V6_12,
    /// The newer kernel for x86-64 with packages: Python, sudo, ping, tools for xfs and btrfs.
    Packaged,
}

/// Every cell by its name in the environment.
const NAMES: [(&str, Cell); 5] = [
    ("native", Cell::Native),
    ("x86_64-6.1", Cell::X86V6_1),
    ("x86_64-6.12", Cell::X86V6_12),
    ("arm64-6.12", Cell::Arm64V6_12),
    ("x86_64-6.12-packaged", Cell::Packaged),
];

/// Rows that need a kernel and busybox.
pub(crate) const PLAIN: &[Cell] = &[
    Cell::Native,
    Cell::X86V6_1,
    Cell::X86V6_12,
    Cell::Arm64V6_12,
];
/// Of [`PLAIN`] the machines that have nothing but the suite.
pub(crate) const EMULATED: &[Cell] = &[Cell::X86V6_1, Cell::X86V6_12, Cell::Arm64V6_12];
/// Rows that run 32-bit x86 programs.
pub(crate) const X86: &[Cell] = &[Cell::Native, Cell::X86V6_1, Cell::X86V6_12];
/// Of [`PLAIN`] the kernels that tell of each io_uring request, and those that do not: there a ring as a whole is a blind spot of
/// the `tracepoint` set.
pub(crate) const SINCE_6_3: &[Cell] = &[Cell::Native, Cell::X86V6_12, Cell::Arm64V6_12];
pub(crate) const BEFORE_6_3: &[Cell] = &[Cell::X86V6_1];
/// Rows that need packages.
pub(crate) const PACKAGED: &[Cell] = &[Cell::Native, Cell::Packaged];

/// What the environment asks for. `docs/scenarios.md` has the variables.
pub(crate) struct Environment {
    pub(crate) cell: Cell,
    /// `None`: what the daemon chooses.
    pub(crate) probe_set: Option<ProbeSet>,
    /// Where `capgate` and `capgated` are; `None`: where cargo put them.
    pub(crate) binaries: Option<PathBuf>,
    /// Where the compiled programs of `programs/` are; `None`: compile them.
    pub(crate) programs: Option<PathBuf>,
    /// Where ledgers are left for comparison.
    pub(crate) ledgers: Option<PathBuf>,
}

impl Environment {
    /// Whether the machine's processors are a program of another one.
    pub(crate) fn is_emulated(&self) -> bool {
        self.cell != Cell::Native
    }

    /// An unknown word is an error that shows the known ones.
    pub(crate) fn read() -> Result<Self, String> {
        let text = |name: &str| match env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(env::VarError::NotPresent) => Ok(None),
            Err(error) => Err(format!("{name}: {error}")),
        };
        let path = |name: &str| env::var_os(name).map(|value: OsString| PathBuf::from(value));
        let cell = match text("CAPGATE_SCENARIO_CELL")? {
            None => Cell::Native,
            Some(word) => {
                let found = NAMES.iter().find(|(name, _)| *name == word);
                let known = NAMES.map(|(name, _)| name).join(", ");
                found
                    .ok_or_else(|| format!("no cell is called {word:?}; known are {known}"))?
                    .1
            }
        };
        let probe_set = match text("CAPGATE_SCENARIO_PROBE_SET")? {
            None => None,
            Some(word) => {
                let sets = [ProbeSet::Tracepoint, ProbeSet::Fentry];
                let found = sets.into_iter().find(|set| set.word() == word);
                Some(found.ok_or_else(|| format!("no probe set is called {word:?}"))?)
            }
        };
        Ok(Self {
            cell,
            probe_set,
            binaries: path("CAPGATE_SCENARIO_BIN"),
            programs: path("CAPGATE_SCENARIO_PROGRAMS"),
            ledgers: path("CAPGATE_SCENARIO_LEDGERS"),
        })
    }
}
