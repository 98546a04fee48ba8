use super::{Names, Why, propose};
use crate::init::looks::{Host, Look};

fn host() -> Host {
    Host {
        name: "runner-7".to_owned(),
        user: "cibot".to_owned(),
        uid: 1001,
    }
}

fn check(runs: &[&[&str]], globs: &[&str]) {
    let runs: Vec<Names> = runs
        .iter()
        .map(|run| run.iter().map(|&name| name.to_owned()).collect())
        .collect();
    let proposal = propose(&runs, &host());
    let found: Vec<&str> = proposal
        .patterns
        .iter()
        .map(|it| it.glob.as_str())
        .collect();
    assert_eq!(found, globs);
    assert_eq!(proposal.uncovered, Vec::<String>::new());
}

#[test]
fn runs_that_are_alike_need_nothing() {
    check(&[&["a", "d/b", "~/x"], &["a", "d/b", "~/x"]], &[]);
    check(&[&[], &[]], &[]);
}

#[test]
fn the_usual_names_need_one_line_each() {
    let pairs: [(&[&str], &[&str], &str); 17] = [
        (
            &[
                "/tmp/pytest-of-cibot/pytest-0/test_a0/x",
                "/tmp/pytest-of-cibot/pytest-current",
            ],
            &[
                "/tmp/pytest-of-cibot/pytest-1/test_a0/x",
                "/tmp/pytest-of-cibot/pytest-current",
            ],
            "/tmp/pytest-of-*/**",
        ),
        (
            &[".coverage.runner-7.4242.123456"],
            &[".coverage.runner-7.4250.654321"],
            ".coverage.*",
        ),
        (
            &[".coverage.runner-7.pid4242.XaBcDeFx"],
            &[".coverage.runner-7.pid4250.XqRsTuVx"],
            ".coverage.*.pid*",
        ),
        (
            &[".coverage.runner-7.pid4242.XaBcDeFx.HgfdpLxqZTYh"],
            &[".coverage.runner-7.pid4250.XqRsTuVx.HgfdpLxqZTYh"],
            ".coverage.*.pid*",
        ),
        (
            &["core.pid4242.log"],
            &["core.pid4250.log"],
            "core.pid*.log",
        ),
        (
            &[".hypothesis/examples/ab12/cd34"],
            &[".hypothesis/examples/ab12/ef56"],
            ".hypothesis/**",
        ),
        (
            &["src/__pycache__/a.pyc", "t/__pycache__/b.pyc"],
            &[],
            "**/__pycache__/**",
        ),
        (
            &["target/debug/incremental/x-1abc/s-h1-0q-w/dep"],
            &["target/debug/incremental/x-1abc/s-h2-9z-w/dep"],
            "target/debug/incremental/**",
        ),
        (
            &["~/.npm/_logs/2026-11-29T10_00_00_000Z-debug-0.log"],
            &["~/.npm/_logs/2026-11-29T10_00_09_000Z-debug-0.log"],
            "~/.npm/**",
        ),
        (
            &["~/.cache/go-build/ab/ab12-a"],
            &["~/.cache/go-build/cd/cd34-a"],
            "~/.cache/go-build/**",
        ),
        (
            &["/dev/shm/sem.mp-k2j3h4"],
            &["/dev/shm/sem.mp-p9o8i7"],
            "/dev/shm/sem.mp-*",
        ),
        (&["tmpab3d_x1"], &["tmpzz01__q"], "tmp*"),
        (&["/tmp/ccA1b2.o"], &["/tmp/ccZ9y8.o"], "/tmp/cc*.o"),
        (
            &["target/CACHEDIR.TAG", "target/debug/x-1", "target/y"],
            &["target/debug/x-2"],
            "target/**",
        ),
        (&["__pycache__/"], &[], "**/__pycache__/**"),
        (
            &[
                "s/.git/HEAD",
                "s/.git/config",
                "s/.git/hooks/x",
                "s/.git/objects/ab/12",
                "s/.git/i",
            ],
            &["s/.git/objects/cd/34", "s/.git/i"],
            "s/.git/**",
        ),
        (
            &["out/1732880000.json"],
            &["out/1732880999.json"],
            "out/*.json",
        ),
    ];
    for (one, other, glob) in pairs {
        check(&[one, other], &[glob]);
    }
}

#[test]
fn a_directory_that_was_removed_in_some_runs_is_named() {
    check(&[&["d/", "d/x"], &["d/x"]], &["d/"]);
}

#[test]
fn names_that_only_some_runs_have_are_named() {
    check(&[&["a", "only once"], &["a"], &["a"]], &["only once"]);
    check(&[&["a", "made/x", "made/y"], &["a"]], &["made/**"]);
    check(&[&["a", "[odd]*"], &["a"]], &["[[]odd[]][*]"]);
    let runs = [&["a"][..], &["a", "b"], &["a"]]
        .map(|run| run.iter().map(|it| (*it).to_owned()).collect());
    assert_eq!(
        propose(&runs, &host()).patterns[0].why,
        Why::OnlyIn(vec![2])
    );
}

#[test]
fn names_that_stay_and_look_as_if_they_would_not_are_shown() {
    let both: &[&str] = &[
        "report-2026-11-29.html",
        "log.runner-7",
        "/tmp/x-cibot/y",
        "v1.2.3",
        "root",
    ];
    check(&[both, both], &["/tmp/x-*/**", "log.*", "report-*.html"]);
    let proposal = propose(&[["report-2026-11-29.html".to_owned()].into()], &host());
    assert_eq!(proposal.patterns[0].why, Why::Looks(Look::Date));
    // With one run alone nobody knows whether numbers move.
    check(&[&["out.4242"]], &["out.*"]);
    check(&[&["out.4242"], &["out.4242"]], &[]);
}

#[test]
fn a_crowd_in_one_directory_is_one_line() {
    check(
        &[
            &["d/x/alpha", "d/x/beta", "d/x/gamma", "d/x/delta", "d/x/s"],
            &["d/x/s"],
        ],
        &["d/x/**"],
    );
}

#[test]
fn no_pattern_names_this_machine_or_user() {
    check(
        &[
            &["/tmp/pytest-of-cibot/pytest-0/x"],
            &["/tmp/pytest-of-cibot/pytest-1/x"],
        ],
        &["/tmp/pytest-of-*/**"],
    );
    check(&[&["once.runner-7"], &[]], &["once.*"]);
}

#[test]
fn names_without_anything_in_common_are_covered_by_their_directory_or_not_at_all() {
    check(&[&["d/k3j", "s"], &["d/9qx", "d/s", "s"]], &["d/*"]);
    let runs: Vec<Names> = ["k3j", "9qx"]
        .iter()
        .map(|&it| [it.to_owned()].into())
        .collect();
    let proposal = propose(&runs, &host());
    assert_eq!(proposal.uncovered, ["9qx", "k3j"]);
    assert!(proposal.patterns.is_empty());
}

#[test]
fn every_proposed_set_makes_the_runs_alike_or_says_so() {
    // Names of a small alphabet, in some order that has nothing to do with them.
    let mut seed = 42_u64;
    let mut next = move |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % bound
    };
    const PARTS: [&str; 14] = [
        "a",
        "b-1",
        "b-2",
        "tmpx1",
        "tmpy2",
        "__pycache__",
        "20261129",
        "*",
        "[x]",
        "é",
        "~",
        "$HOME",
        r"\x0a",
        "runner-7",
    ];
    for _ in 0..300 {
        let runs: Vec<Names> = (0..1 + next(3))
            .map(|_| {
                (0..next(5))
                    .map(|_| {
                        let anchor = ["", "/", "~/", "/tmp/"][usize::try_from(next(4)).unwrap()];
                        let depth = 1 + next(3);
                        let parts: Vec<&str> = (0..depth)
                            .map(|_| PARTS[usize::try_from(next(14)).unwrap()])
                            .collect();
                        format!("{anchor}{}", parts.join("/"))
                    })
                    .collect()
            })
            .collect();
        let proposal = propose(&runs, &host());
        let globs: Vec<String> = proposal.patterns.iter().map(|it| it.glob.clone()).collect();
        let matcher = capgate_common::glob::GlobPatterns::new(&globs).expect("good globs");
        let left: Vec<Names> = runs
            .iter()
            .map(|run| {
                let names = run
                    .iter()
                    .filter(|name| !matcher.matches(name) && !proposal.uncovered.contains(name));
                names.cloned().collect()
            })
            .collect();
        assert!(
            left.windows(2).all(|pair| pair[0] == pair[1]),
            "{runs:?}: {globs:?}"
        );
        for pattern in &proposal.patterns {
            assert!(!pattern.names.is_empty(), "{runs:?}: {pattern:?}");
        }
    }
}
