use super::*;
use crate::witnesses::{tree::Kind, walk::Found};

/// Names in `/w`: a file `a`, a directory `d/`; a number behind a file is its state.
fn walk(names: &str) -> Walk {
    let mut walk = Walk {
        whole: vec!["/w".into()],
        ..Walk::default()
    };
    for word in names.split_whitespace() {
        let (name, state) = word.split_once('=').unwrap_or((word, "0"));
        let (name, kind) = match name.strip_suffix('/') {
            Some(name) => (name, Kind::Directory),
            None => (name, Kind::File),
        };
        let state = (0, state.parse().unwrap(), 0);
        let path = Path::new("/w").join(name);
        walk.names.insert(path, Found { kind, state });
    }
    walk
}

fn entries(words: &str) -> BTreeSet<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// What a job comes to: the names that strace saw, those before and after, those told as written and as transient.
fn check(
    strace: &str,
    [before, after]: [&str; 2],
    [written, transient]: [&str; 2],
    expect: [&str; 2],
) {
    let mut story = Story::default();
    for word in strace.split_whitespace() {
        match word.strip_suffix('/') {
            Some(name) => {
                story.directories.insert(Path::new("/w").join(name));
            }
            None => {
                story.files.insert(Path::new("/w").join(word), 7);
            }
        }
    }
    let (before, after) = (walk(before), walk(after));
    let seen = Seen {
        story: &story,
        before: &before,
        after: &after,
    };
    let told = Told {
        written: entries(written),
        transient: entries(transient),
        programs: BTreeSet::new(),
    };
    let forms = Forms::new(b"/w", None, 7).unwrap();
    let judgement = judge(&forms, seen, &told).unwrap();
    let names = |found: BTreeMap<String, _>| -> BTreeSet<String> { found.into_keys().collect() };
    let found = (names(judgement.missed), names(judgement.invented));
    let expect = (entries(expect[0]), entries(expect[1]));
    assert_eq!(found, expect, "{strace:?} {written:?} {transient:?}");
}

#[test]
fn what_all_agree_on_is_neither_missed_nor_invented() {
    check("a t", ["", "a"], ["a", "t"], ["", ""]);
    // Opened for writing, and left as it was.
    check("a", ["a", "a"], ["a", ""], ["", ""]);
    check("a", ["a", ""], ["a", ""], ["", ""]);
    // A directory that was there takes along what was in it.
    check("d/ e/", ["d/ d/a", "e/ e/a"], ["d/ e/", ""], ["", ""]);
    check("t/ t/a", ["", ""], ["", "t/a"], ["", ""]);
    // What a rename put there, and is gone: nobody knows whether it was new.
    check("a.1 a", ["", ""], ["*", "a.1"], ["", ""]);
}

#[test]
fn what_a_witness_saw_and_nobody_told_is_missed() {
    check("a", ["", "a"], ["", ""], ["a", ""]);
    check("t", ["", ""], ["", ""], ["t", ""]);
    // By the walk alone.
    check("", ["a=1", "a=2"], ["", ""], ["a", ""]);
    check("", ["", "a"], ["", ""], ["a", ""]);
    check("", ["d/", ""], ["", ""], ["d/", ""]);
}

#[test]
fn what_counts_is_missed_when_it_is_told_as_transient() {
    check("a", ["", "a"], ["", "a"], ["a", ""]);
    check("a", ["a", ""], ["", "a"], ["a", ""]);
    check("a", ["a", "a"], ["", "a"], ["a", ""]);
}

#[test]
fn what_no_witness_saw_is_invented() {
    check("", ["", ""], ["a", "t"], ["", "a t"]);
    check("", ["d/", "d/"], ["d/", ""], ["", "d/"]);
    check("", ["", ""], ["*", ""], ["", "*"]);
    // There all the time and not touched.
    check("", ["a", "a"], ["a", ""], ["", "a"]);
}

#[test]
fn what_came_and_went_is_invented_when_it_counts() {
    check("t", ["", ""], ["t", ""], ["", "t"]);
    check("t/", ["", ""], ["t/", ""], ["", "t/"]);
}

#[test]
fn programs_are_compared_too() {
    let mut story = Story::default();
    story
        .programs
        .extend(["/bin/a", "/bin/b"].map(PathBuf::from));
    let nothing = Walk::default();
    let seen = Seen {
        story: &story,
        before: &nothing,
        after: &nothing,
    };
    let told = Told {
        programs: entries("/bin/b /bin/c"),
        ..Told::default()
    };
    let judgement = judge(&Forms::new(b"/w", None, 7).unwrap(), seen, &told).unwrap();
    let names = |found: BTreeMap<String, _>| found.into_keys().collect::<Vec<_>>();
    assert_eq!(names(judgement.missed), ["/bin/a"]);
    assert_eq!(names(judgement.invented), ["/bin/c"]);
}
