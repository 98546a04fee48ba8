//! The cells of the kernel matrix: which kernel on which architecture, with what user space.

use anyhow::{Result, bail};

use super::machine::Machine;

/// One kernel with one user space.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// What it is called on the command line, in verdicts and by the scenario suite.
    pub(crate) name: &'static str,
    /// Where it runs.
    pub(crate) place: Place,
}

/// Where a cell runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This machine, with its own kernel.
    Here,
    /// An emulated machine.
    Emulated {
        /// The package that depends on the newest kernel of its release.
        kernel: &'static str,
        /// What is emulated.
        machine: Machine,
        /// Whether there is a distribution's user space, or busybox alone.
        packaged: bool,
    },
}

/// The probe sets that are tested in emulated machines. This machine's kernel may not let the second one load.
pub(crate) const PROBE_SETS: [&str; 2] = ["tracepoint", "fentry"];

/// The name of the cell that is this machine.
pub(crate) const NATIVE: &str = "native";

/// The whole matrix, in the order of the verdicts.
pub(crate) const CELLS: [Cell; 5] = [
    Cell {
        name: NATIVE,
        place: Place::Here,
    },
    Cell {
        name: "x86_64-6.1",
        place: Place::Emulated {
            kernel: "linux-image-cloud-amd64",
            machine: Machine::X86_64,
            packaged: false,
        },
    },
    Cell {
        name: "x86_64-6.12",
        place: Place::Emulated {
            kernel: "linux-image-6.12-cloud-amd64",
            machine: Machine::X86_64,
            packaged: false,
        },
    },
    Cell {
        name: "arm64-6.12",
        place: Place::Emulated {
            kernel: "linux-image-6.12-cloud-arm64",
            machine: Machine::Arm64,
            packaged: false,
        },
    },
    Cell {
        name: "x86_64-6.12-packaged",
        place: Place::Emulated {
            kernel: "linux-image-6.12-cloud-amd64",
            machine: Machine::X86_64,
            packaged: true,
        },
    },
];

/// The cells of these names, or all; an unknown name is an error that shows the known ones.
pub(crate) fn named(names: &[String]) -> Result<Vec<&'static Cell>> {
    if names.is_empty() {
        return Ok(CELLS.iter().collect());
    }
    names
        .iter()
        .map(|name| {
            let found = CELLS.iter().find(|cell| cell.name == name);
            let Some(cell) = found else {
                let known: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
                bail!("no cell is called {name:?}; known are {}", known.join(", "));
            };
            Ok(cell)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability;

    fn check(names: &[&str], expect: Result<&[&str], &str>) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = named(&names).map_err(|e| e.to_string());
        match (found, expect) {
            (Ok(found), Ok(expect)) => {
                let found: Vec<_> = found.iter().map(|cell| cell.name).collect();
                assert_eq!(found, expect);
            }
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (found, _) => panic!("{names:?}: {found:?}"),
        }
    }

    #[test]
    fn every_emulated_run_is_counted_as_absent_where_machines_are() {
        let emulated = CELLS.iter().filter(|cell| cell.place != Place::Here);
        let runs = emulated.count() * PROBE_SETS.len();
        assert_eq!(capability::named("vm").map(|vm| vm.tests), Ok(runs));
    }

    #[test]
    fn cells_are_found_by_name_and_none_means_all() {
        let all: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        check(&[], Ok(&all));
        check(&["arm64-6.12", "native"], Ok(&["arm64-6.12", "native"]));
        check(&["x86_64-6.2"], Err("known are native, x86_64-6.1, "));
    }
}
