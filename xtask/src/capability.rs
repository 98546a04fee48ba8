//! What single tests need and a machine may lack.
//!
//! A test never decides by itself to skip: the operator declares in `CAPGATE_TEST_ABSENT`, or in `CAPGATE_ABSENT` for
//! `cargo xtask test`, what is absent, and what is not declared absent is required. The integration tests include this file too.

/// The variable with the names of absent capabilities, separated by commas.
pub(crate) const VARIABLE: &str = "CAPGATE_TEST_ABSENT";

/// The variable with the path of a file to which a test that does not run adds a line. `cargo xtask test` sets and counts it.
pub(crate) const SKIP_LOG: &str = "CAPGATE_TEST_SKIP_LOG";

/// Something that may be declared absent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    /// Its name in the variable.
    pub(crate) name: &'static str,
    /// What its presence means.
    pub(crate) meaning: &'static str,
    /// How many tests need it. Pinned, so that a test which skips itself for another reason fails the run.
    pub(crate) tests: usize,
}

/// Every capability that a test may ask for.
pub(crate) const CAPABILITIES: [Capability; 6] = [
    Capability {
        name: "fuse",
        meaning: "the kernel has file systems in user space (/dev/fuse)",
        tests: 1,
    },
    Capability {
        name: "ia32",
        meaning: "the kernel and the C compiler run 32-bit x86 programs",
        tests: 2,
    },
    Capability {
        name: "images",
        meaning: "the kernel mounts images of xfs and btrfs from files",
        tests: 2,
    },
    Capability {
        name: "npm",
        meaning: "npm runs",
        tests: 2,
    },
    Capability {
        name: "pypi",
        meaning: "source distributions can be fetched from a Python package index",
        tests: 6,
    },
    Capability {
        name: "vm",
        meaning: "other kernels can be fetched from Debian's archive and emulated",
        // Each emulated cell of `cargo xtask vm` with each probe set; a run of the suite counts as one here.
        tests: 8,
    },
];

/// The capabilities in a value of the variable. An unknown name is an error that shows the known ones.
pub(crate) fn declared(value: &str) -> Result<Vec<&'static Capability>, String> {
    value
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(named)
        .collect()
}

/// The capability of this name.
pub(crate) fn named(name: &str) -> Result<&'static Capability, String> {
    CAPABILITIES
        .iter()
        .find(|capability| capability.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = CAPABILITIES
                .iter()
                .map(|c| format!("{} ({})", c.name, c.meaning))
                .collect();
            format!(
                "{VARIABLE}: no capability is called {name:?}; known are {}",
                known.join(", ")
            )
        })
}
