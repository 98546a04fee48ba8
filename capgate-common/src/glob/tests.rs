use super::GlobPatterns;

fn globs(texts: &[&str]) -> GlobPatterns {
    let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
    GlobPatterns::new(&texts).expect("good globs")
}

fn check(glob: &str, matched: &[&str], others: &[&str]) {
    let globs = globs(&[glob]);
    for entry in matched {
        assert!(globs.matches(entry), "{glob} matches {entry}");
    }
    for entry in others {
        assert!(!globs.matches(entry), "{glob} does not match {entry}");
    }
}

fn refuse(glob: &str, phrase: &str) {
    for compile in [GlobPatterns::new, GlobPatterns::directories] {
        let error = compile(&["fine/x".to_owned(), glob.to_owned()]).expect_err(glob);
        assert_eq!(error.index, Some(1), "{glob}");
        assert!(error.problem.contains(phrase), "{glob:?}: {error}");
    }
}

#[test]
fn an_entry_is_a_glob_for_itself() {
    for entry in [
        "a",
        "src/a b",
        "~/x",
        "/etc/hosts",
        "/run/user/$UID/x",
        r"a\x0ab",
        r"a\\b",
        r"\x7e/x",
        "memfd:x",
        "a,b!c^d",
    ] {
        check(entry, &[entry], &["b", "a/b", "/a"]);
    }
}

#[test]
fn one_star_stays_in_one_name_and_two_cross_slashes() {
    check("a/*.pyc", &["a/x.pyc", "a/.pyc"], &["a/b/x.pyc", "x.pyc"]);
    check("a/**", &["a/x", "a/b/c"], &["a", "ab/x"]);
    check(
        "**/__pycache__/**",
        &["__pycache__/x", "a/b/__pycache__/x/y"],
        &["a/__pycache__2/x"],
    );
    check("a/?", &["a/b"], &["a/", "a/bc"]);
    check("a/[0-9]{x,y}", &["a/1x", "a/2y"], &["a/1z", "a/ax"]);
}

#[test]
fn characters_of_globs_are_literal_in_brackets() {
    check("a[[]1].x", &["a[1].x"], &["a1.x"]);
    check("[*]", &["*"], &["a"]);
}

#[test]
fn relative_globs_match_inside_the_root_only() {
    check("**/x", &["x", "a/x"], &["/x", "/a/x", "~/x", "memfd:x"]);
    check("/tmp/**/x", &["/tmp/x", "/tmp/a/x"], &["tmp/x", "~/tmp/x"]);
    check("~/**/x", &["~/x", "~/a/x"], &["x", r"\x7e/x", "/~/x"]);
    check("memfd:*", &["memfd:x"], &[r"\x6demfd:x"]);
    check("[~]/x", &[], &["~/x"]);
}

#[test]
fn the_slash_of_a_directory_need_not_be_written() {
    check("build", &["build", "build/"], &["build/x"]);
    check("*/d", &["a/d/"], &["d/"]);
    check("d/", &["d/"], &["d"]);
}

#[test]
fn names_that_are_not_known_one_by_one_match_like_names() {
    check("logs/*", &["logs/*"], &["*", "other/*"]);
}

#[test]
fn directories_cover_themselves_and_all_below() {
    let globs = GlobPatterns::directories(&[
        "~/.cache/pip".to_owned(),
        "build/".to_owned(),
        "/var/t*".to_owned(),
    ])
    .expect("good globs");
    for (entry, expect) in [
        ("~/.cache/pip", &[0][..]),
        ("~/.cache/pip/", &[0]),
        ("~/.cache/pip/a/b", &[0]),
        ("~/.cache/pip2", &[]),
        ("build", &[1]),
        ("build/x", &[1]),
        ("a/build/x", &[]),
        ("/var/tmp/x", &[2]),
        ("/var/lib", &[]),
    ] {
        assert_eq!(globs.matching(entry), expect, "{entry}");
    }
}

#[test]
fn a_glob_that_matches_everything_is_refused() {
    for glob in [
        "*",
        "**",
        "**/*",
        "*/**",
        "*/*",
        "*/*/*",
        "?*",
        "/*",
        "/**",
        "/**/*",
        "/*/*",
        "~/*",
        "~/**",
        "{*,a}",
        "[!.]*",
        "[a-zA-Z0-9]*",
    ] {
        refuse(glob, "matches everything");
    }
}

#[test]
fn a_directory_glob_of_a_whole_place_is_refused() {
    for glob in ["/", "~", "~/", "*"] {
        let error = GlobPatterns::directories(&[glob.to_owned()]).expect_err(glob);
        assert!(
            error.problem.contains("matches everything"),
            "{glob}: {error}"
        );
    }
}

#[test]
fn malformed_globs_are_refused() {
    refuse("", "empty");
    refuse("a[", "unclosed");
    refuse("{a", "unclosed");
    refuse("[b-a]", "invalid range");
    refuse("a//b", "in no entry");
    refuse("./a", "in no entry");
    refuse("a/../b", "in no entry");
    refuse("//a", "in no entry");
    refuse("a\nb", r"`\x0a`");
    refuse(&"{".repeat(300), "nested too deeply");
}

#[test]
fn every_glob_that_matches_is_told_once() {
    let globs = globs(&["a*", "ab", "x", "{ab,abc}"]);
    assert_eq!(globs.matching("ab"), [0, 1, 3]);
    assert_eq!(globs.matching("ab/"), [0, 1, 3]);
    assert_eq!(globs.matching("y"), Vec::<usize>::new());
}

#[test]
fn globs_that_are_too_complex_together_are_refused() {
    let hostile = format!("a/{}", "*?[a-z]".repeat(40_000));
    let error = GlobPatterns::new(&[hostile]).expect_err("too large");
    assert_eq!(error.index, None);
    assert!(error.problem.contains("too complex together"), "{error}");
}

#[test]
fn a_literal_matches_its_entry_alone() {
    for entry in [
        "a",
        "a/b",
        "*",
        "d/*",
        "a?[b]{c,d}",
        r"a\x0a",
        "$HOME/x",
        "~/x",
        "/x/y z",
        "memfd:x",
        "é",
        "d/",
    ] {
        let globs = [super::literal(entry)];
        let globs = GlobPatterns::new(&globs).expect(entry);
        assert!(globs.matches(entry), "{entry}");
        for other in ["b", "d/x", "aXbc", "x/y", "/x/y", "~/y"] {
            assert!(!globs.matches(other), "{entry} does not match {other}");
        }
    }
    assert_eq!(super::literal("$HOME/x"), "[$]HOME/x");
}
