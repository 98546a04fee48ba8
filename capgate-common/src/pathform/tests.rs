use std::collections::BTreeMap;

use super::{Forms, Place, escape, neutralise, unescape};

fn forms() -> Forms {
    Forms::new(b"/home/u/work/repo", Some(b"/home/u"), 1000).expect("a normal root")
}

fn entry(path: &str) -> String {
    forms()
        .form(path.as_bytes(), &|pid| pid == 77)
        .expect("a normal path")
        .entry
}

fn check(path: &str, expect: &str) {
    assert_eq!(entry(path), expect, "form of {path}");
}

#[test]
fn ordinary_names_are_not_changed() {
    for name in [
        "a",
        "a b",
        "é",
        "名前",
        "tests/__pycache__/x.pyc",
        "$HOME",
        "-rf",
    ] {
        assert_eq!(escape(name.as_bytes()), name);
    }
}

#[test]
fn what_was_escaped_reads_back_and_nothing_else_does() {
    for bytes in [
        &b""[..],
        b"/a b/\xc3\xa9",
        b"a\\b\n\x7f",
        b"\xff\xfe\\x41",
        b"\\\\",
    ] {
        assert_eq!(unescape(&escape(bytes)).as_deref(), Some(bytes));
    }
    for text in ["\\", "\\x4", "\\x41", "\\xFF", "\\n", "\x01", "\\xc3\\xa9"] {
        assert_eq!(unescape(text), None, "{text:?}");
    }
}

#[test]
fn control_bytes_backslashes_and_invalid_utf8_are_escaped() {
    for (bytes, expect) in [
        (&b"a\nb"[..], r"a\x0ab"),
        (b"\x00\x1f\x7f", r"\x00\x1f\x7f"),
        (b"\x1b[2J", r"\x1b[2J"),
        (br"a\b", r"a\\b"),
        (br"\x0a", r"\\x0a"),
        (b"\xff", r"\xff"),
        (b"\xc3", r"\xc3"),
        (b"\xc3\xa9\xc3", "é\\xc3"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"\xf0\x9f\x98", r"\xf0\x9f\x98"),
        ("\u{85}".as_bytes(), "\u{85}"),
    ] {
        assert_eq!(escape(bytes), expect, "{bytes:?}");
    }
}

#[test]
fn escaping_is_injective_on_all_short_names_over_a_nasty_alphabet() {
    let alphabet = b"\\x0a\n\x7f\xff\xc3\xa9~";
    let mut seen: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut words: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..4 {
        words = words
            .iter()
            .flat_map(|word| {
                alphabet.iter().map(|&byte| {
                    let mut longer = word.clone();
                    longer.push(byte);
                    longer
                })
            })
            .collect();
        for word in &words {
            if let Some(other) = seen.insert(escape(word), word.clone()) {
                assert_eq!(&other, word, "two names with one text");
            }
        }
    }
}

#[test]
fn what_could_fool_a_reader_is_neutralised_where_it_is_shown() {
    for (text, expect) in [
        ("plain é 名前", "plain é 名前"),
        (r"a\x0ab", r"a\x0ab"),
        ("\u{1b}[31m\r\n\t", r"\x1b[31m\x0d\x0a\x09"),
        ("\u{9b}31m", r"\u{9b}31m"),
        ("a\u{202e}txt.exe", r"a\u{202e}txt.exe"),
        ("zero\u{200b}width\u{feff}", r"zero\u{200b}width\u{feff}"),
        ("\u{2028}", r"\u{2028}"),
        ("\u{e0041}", r"\u{e0041}"),
    ] {
        assert_eq!(neutralise(text), expect);
    }
}

#[test]
fn a_path_inside_the_root_is_relative() {
    check("/home/u/work/repo/a", "a");
    check("/home/u/work/repo/src/a b", "src/a b");
    check("/home/u/work/repo", ".");
}

#[test]
fn a_sibling_that_shares_the_prefix_is_not_inside() {
    check("/home/u/work/repo2/a", "~/work/repo2/a");
    check("/home/u2/a", "/home/u2/a");
    check("/run/user/10001/a", "/run/user/10001/a");
    check("/process", "/process");
}

#[test]
fn home_runtime_directory_and_own_processes_have_their_forms() {
    check("/home/u/.cache/x", "~/.cache/x");
    check("/home/u", "~");
    check("/run/user/1000/bus", "/run/user/$UID/bus");
    check("/run/user/1000", "/run/user/$UID");
    check("/proc/77/comm", "/proc/self/comm");
    check("/proc/77", "/proc/self");
    check("/proc/self/comm", "/proc/self/comm");
    check("/proc/77/task/78/comm", "/proc/self/task/$TID/comm");
    check("/proc/78/comm", "/proc/78/comm");
    check("/proc/sys/kernel/hostname", "/proc/sys/kernel/hostname");
    check("/etc/hosts", "/etc/hosts");
    check("/", "/");
}

#[test]
fn the_place_says_where_the_path_lies() {
    let place = |path: &str| {
        forms()
            .form(path.as_bytes(), &|pid| pid == 77)
            .map(|form| form.place)
    };
    assert_eq!(place("/home/u/work/repo/a"), Some(Place::Root));
    assert_eq!(place("/home/u/a"), Some(Place::Home));
    assert_eq!(place("/run/user/1000/a"), Some(Place::RunUser));
    assert_eq!(place("/proc/77/a"), Some(Place::ProcSelf));
    assert_eq!(place("/tmp/a"), Some(Place::Other));
}

#[test]
fn a_path_that_was_not_resolved_has_no_form() {
    for path in ["", "a", "a/b", "/a/../b", "/a/./b", "/a//b", "/a/"] {
        assert_eq!(forms().form(path.as_bytes(), &|_| false), None, "{path}");
    }
    for path in ["/a", "a/..", "./a", "a//b", "a/"] {
        assert_eq!(forms().in_root(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn a_name_cannot_imitate_another_form() {
    check("/home/u/work/repo/~/x", r"\x7e/x");
    check("/home/u/work/repo/~", r"\x7e");
    check("/home/u/work/repo/~x", "~x");
    check("/home/u/work/repo/a/~/x", "a/~/x");
    check("/home/u/work/repo/memfd:x", r"\x6demfd:x");
    check("/home/u/work/repo/*", r"\x2a");
    check("/tmp/*", r"/tmp/\x2a");
    check("/tmp/**", "/tmp/**");
    check("/run/user/$UID/x", r"/run/user/\x24UID/x");
    check("/run/user/$UIDx", "/run/user/$UIDx");
    check(r"/home/u/work/repo/\x7e/x", r"\\x7e/x");
}

#[test]
fn no_two_paths_have_one_entry() {
    let names = [
        "~", "*", ".x", "x", r"\x7e", r"\x2a", "$UID", "memfd:x", "\n", r"\x0a", "77", "u",
    ];
    let places = [
        "",
        "/home/u/work/repo",
        "/home/u",
        "/run/user",
        "/run/user/1000",
        "/proc/sys",
    ];
    let forms = forms();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |entry: String, what: String| {
        if let Some(other) = seen.insert(entry.clone(), what.clone()) {
            assert_eq!(other, what, "both are written {entry}");
        }
    };
    for place in places {
        for first in names {
            for path in std::iter::once(format!("{place}/{first}")).chain(
                names
                    .iter()
                    .map(|second| format!("{place}/{first}/{second}")),
            ) {
                let form = forms.form(path.as_bytes(), &|_| false).expect("normal");
                add(form.directory(), format!("{path}/"));
                add(form.anything_in(), format!("some name in {path}"));
                add(form.entry, path);
            }
        }
    }
}

#[test]
fn directories_end_with_a_slash_and_unknown_names_with_a_star() {
    let form = |path: &str| forms().form(path.as_bytes(), &|_| false).expect("normal");
    assert_eq!(form("/home/u/work/repo/d").directory(), "d/");
    assert_eq!(form("/home/u/work/repo").directory(), "./");
    assert_eq!(form("/").directory(), "/");
    assert_eq!(form("/home/u/work/repo/d").anything_in(), "d/*");
    assert_eq!(form("/home/u/work/repo").anything_in(), "*");
    assert_eq!(form("/home/u").anything_in(), "~/*");
    assert_eq!(form("/etc/cron.d").anything_in(), "/etc/cron.d/*");
    assert_eq!(form("/").anything_in(), "/*");
}

#[test]
fn a_root_must_be_absolute_and_normal_and_a_home_of_slash_is_none() {
    assert!(Forms::new(b"repo", None, 0).is_err());
    assert!(Forms::new(b"/a/../b", None, 0).is_err());
    assert!(Forms::new(b"", None, 0).is_err());
    let forms = Forms::new(b"/srv/repo//", Some(b"/"), 0).expect("trailing slashes are fine");
    assert_eq!(forms.root(), b"/srv/repo");
    let form = forms.form(b"/etc/x", &|_| false).expect("normal");
    assert_eq!(form.entry, "/etc/x");
}

#[test]
fn with_the_whole_file_system_as_root_everything_is_relative() {
    let forms = Forms::new(b"/", Some(b"/root"), 0).expect("normal");
    let form = forms.form(b"/etc/x", &|_| false).expect("normal");
    assert_eq!(form.entry, "etc/x");
}

#[test]
fn the_root_and_its_ancestors_hold_the_root() {
    let forms = forms();
    for path in ["/home/u/work/repo", "/home/u/work/repo/", "/home/u", "/"] {
        assert!(forms.holds_root(path.as_bytes()), "{path}");
    }
    for path in ["/home/u/work/repo/x", "/home/u/work/re", "/tmp"] {
        assert!(!forms.holds_root(path.as_bytes()), "{path}");
    }
}
