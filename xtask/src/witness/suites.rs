//! The suites: real ones, of several languages, pinned. Each was chosen for what it does to files.

/// A suite.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Its project, as the index calls it.
    pub(crate) name: &'static str,
    /// The release.
    pub(crate) version: &'static str,
    /// Language, for the reader.
    pub(crate) language: &'static str,
    /// Where the release comes from.
    pub(crate) source: Source,
    /// SHA-256 of the release's archive.
    pub(crate) sha256: &'static str,
    /// The job: a script for sh, in the project's directory.
    pub(crate) script: &'static str,
    /// How many tests passed, from what the job printed.
    pub(crate) passed: fn(&str) -> usize,
}

/// Where a release comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A source distribution of the Python package index.
    Python {
        /// What its tests import.
        needs: &'static [&'static [Wheel]],
        /// Whether its tests ask for the metadata of the installed project.
        installed: bool,
    },
    /// A crate. Its own lock file pins what it needs.
    Crate,
    /// A C project that a crate carries in this directory.
    InCrate(&'static str),
    /// A package of the npm registry.
    Node {
        /// What its tests need, as `name@version`.
        needs: &'static [&'static str],
        /// Nothing published later is installed, which pins what those need in turn.
        before: &'static str,
    },
}

/// A built package of the Python package index, and its archive's SHA-256: one, or one for each architecture.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// `name==version`.
    pub(crate) requirement: &'static str,
    /// The digests.
    pub(crate) sha256: &'static [&'static str],
}

/// The test runner and what it needs.
const PYTEST: &[Wheel] = &[
    Wheel {
        requirement: "pytest==9.2.0",
        sha256: &["07acdcf88ec174f907dc01af70bf52d49b014bbab03faeeade31c96b18c2e588"],
    },
    Wheel {
        requirement: "iniconfig==2.3.1",
        sha256: &["9121e2c1fdb355232495be3194c8dfe87ccc2d5dee45947b78e68f499790d7a7"],
    },
    Wheel {
        requirement: "packaging==26.4",
        sha256: &["81383611a09c1bc0b08b76e0fd5829d7c6824c65b27a6aee339da133f4233ea2"],
    },
    Wheel {
        requirement: "pluggy==1.7.0",
        sha256: &["7dd7b0d8832ba3cb632c306926ded123429211b83641b35dc5c41ad2d34f9bec"],
    },
    Wheel {
        requirement: "pygments==2.21.0",
        sha256: &["2363c69b61c4a97c838da3b130dcd6468f4848992b21a82f2a63ec34377137d9"],
    },
];

/// What compiles C extensions.
const SETUPTOOLS: &[Wheel] = &[Wheel {
    requirement: "setuptools==80.9.0",
    sha256: &["062d34222ad13e0cc312a4c02d73f059e86a4acbfbdea8f8f76b28c99f306922"],
}];

/// What the tests of attrs import beside pytest.
const OF_ATTRS: &[Wheel] = &[
    Wheel {
        requirement: "hypothesis==6.170.17",
        sha256: &[
            "ba5757621056597fd71d101357fed17b7f200592ca6050b59bf6733869de9fc5",
            "83725fa8022f45bc972e975d07e45aca63d1d1edf415821d8c28aa6014323cfb",
        ],
    },
    Wheel {
        requirement: "cloudpickle==3.1.3",
        sha256: &["1654f4f18e416447210a63c5c25a135d65a292156aa5fa519dfa4baf7726dddb"],
    },
    Wheel {
        requirement: "sortedcontainers==2.4.0",
        sha256: &["a163dcaede0f1c021485e957a39245190e74249897e2ae4b2aa38595db237ee0"],
    },
];

/// All suites.
pub(crate) static SUITES: [Suite; 9] = [
    Suite {
        name: "attrs",
        version: "26.1.0",
        language: "Python",
        source: Source::Python {
            needs: &[PYTEST, OF_ATTRS],
            installed: true,
        },
        sha256: "d03ceb89cb322a8fd706d4fb91940737b6642aa36998fe130a9bc96c985eff32",
        // The one left out depends on the interpreter's patch release.
        script: "/usr/bin/python3 -m pytest -q -k 'not test_wrapped_annotation' tests",
        passed: by_word,
    },
    Suite {
        name: "atomicwrites",
        version: "1.4.1",
        language: "Python",
        source: Source::Python {
            needs: &[PYTEST],
            installed: false,
        },
        sha256: "81b2c9071a49367a7f770170e5eec8cb66567cfbbc8c73d20ce5ca4a8d71cf11",
        script: "/usr/bin/python3 -m pytest -q tests",
        passed: by_word,
    },
    Suite {
        name: "markupsafe",
        version: "3.0.4",
        language: "Python, C extension",
        source: Source::Python {
            needs: &[PYTEST, SETUPTOOLS],
            installed: false,
        },
        sha256: "2e9ad7dd851bf45fab9f75cbff4cb493fee9979e8d8c7c9c3ee119022518edd6",
        script: "/usr/bin/python3 setup.py -q build_ext --inplace && PYTHONPATH=src:$PYTHONPATH /usr/bin/python3 -m pytest -q",
        passed: by_word,
    },
    Suite {
        name: "pluggy",
        version: "1.7.0",
        language: "Python",
        source: Source::Python {
            needs: &[PYTEST],
            installed: false,
        },
        sha256: "d1eaa46ebb595891b860ab086b4d09c8588af65ebd4361b8e8f4bb8920b90ba8",
        script: "PYTHONPATH=src:$PYTHONPATH /usr/bin/python3 -m pytest -q testing",
        passed: by_word,
    },
    Suite {
        name: "regex",
        version: "2026.11.19",
        language: "Python, C extension",
        source: Source::Python {
            needs: &[SETUPTOOLS],
            installed: false,
        },
        sha256: "2826a006b68acfd3ed5074433caafe21d7f9d026eb82cb856724a4a893a70915",
        script: "/usr/bin/python3 setup.py -q build_ext --inplace && /usr/bin/python3 -m unittest regex.tests.test_regex 2>&1",
        passed: by_unittest,
    },
    Suite {
        name: "semver",
        version: "1.0.27",
        language: "Rust",
        source: Source::Crate,
        sha256: "d767eb0aabc880b29956c35734170f26ed551a859dbd361d140cdbeca61ab1e2",
        script: "/usr/bin/cargo test --quiet --locked",
        passed: by_word,
    },
    Suite {
        name: "tempfile",
        version: "3.23.0",
        language: "Rust",
        source: Source::Crate,
        sha256: "2d31c77bdf42a745371d260a26ca7163f1e0924b64afa0b688e61b5a9fa02f16",
        // Without the examples in its documentation: each is compiled by itself.
        script: "/usr/bin/cargo test --quiet --locked --lib --tests",
        passed: by_word,
    },
    Suite {
        name: "tar-fs",
        version: "2.1.3",
        language: "JavaScript (node)",
        source: Source::Node {
            needs: &["tape@5.9.0", "rimraf@2.7.1"],
            before: "2026-06-01",
        },
        sha256: "2d1d600bbdbe56baa581cf4398d8edb0aa31550cd460fb437eae96459eb01f0d",
        // The registry's archives leave out links, and a name that it gives a meaning to.
        script: "mkdir test/fixtures/c && touch test/fixtures/c/.gitignore && ln -s file test/fixtures/e/symlink && \
            node test/index.js",
        passed: by_tap,
    },
    Suite {
        name: "bzip2-sys",
        version: "0.1.13+1.0.8",
        language: "C (make)",
        source: Source::InCrate("bzip2-1.0.8"),
        sha256: "225bff33b2141874fe80d71e07d6eec4f85c5c216453dd96388240f96e1acc14",
        script: "make check",
        passed: by_cmp,
    },
];

/// Sum of the numbers before the word `passed`, as pytest and cargo write it.
fn by_word(output: &str) -> usize {
    let words: Vec<&str> = output.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| {
        let word = pair[1].trim_end_matches([',', ';']);
        word == "passed"
    });
    pairs.filter_map(|pair| pair[0].parse::<usize>().ok()).sum()
}

/// The number in `Ran 3 tests in 0.1s`.
fn by_unittest(output: &str) -> usize {
    numbers_behind(output, "Ran ").sum()
}

/// The number in `# pass 3`, as TAP writes it.
fn by_tap(output: &str) -> usize {
    numbers_behind(output, "# pass ").sum()
}

/// Comparisons that a makefile's rule made.
fn by_cmp(output: &str) -> usize {
    output
        .lines()
        .filter(|line| line.starts_with("cmp "))
        .count()
}

/// The numbers of lines that begin so.
fn numbers_behind<'a>(output: &'a str, begin: &'a str) -> impl Iterator<Item = usize> + 'a {
    output.lines().filter_map(move |line| {
        let rest = line.strip_prefix(begin)?.trim_start();
        rest.split_whitespace().next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted_as_each_runner_prints_them() {
        let check = |count: fn(&str) -> usize, output: &str, expect: usize| {
            assert_eq!(count(output), expect, "{output}");
        };
        check(by_word, "...\n79 passed, 1 skipped in 0.83s", 79);
        check(by_word, "6 passed in 0.18s", 6);
        check(
            by_word,
            "test result: ok. 3 passed; 0 failed\n\ntest result: ok. 4 passed; 0 failed",
            7,
        );
        check(by_word, "no tests ran", 0);
        check(by_unittest, "Ran 103 tests in 1.032s\n\nOK", 103);
        check(by_tap, "1..3\n# tests 3\n# pass  3\n", 3);
        check(by_cmp, "./bzip2 -1 < a > b\ncmp a b\ncmp c d", 2);
    }

    #[test]
    fn each_suite_has_a_name_of_its_own_and_a_digest() {
        for (index, suite) in SUITES.iter().enumerate() {
            assert!(
                SUITES[..index]
                    .iter()
                    .all(|before| before.name != suite.name)
            );
            assert_eq!(suite.sha256.len(), 64, "{}", suite.name);
        }
    }
}
