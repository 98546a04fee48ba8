//! What `strace -f -y -o FILE` writes -> calls. Lines of calls that were interrupted by another process' line are joined.

use std::collections::HashMap;

/// A system call that came to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The thread.
    pub(super) tid: u32,
    pub(super) name: String,
    /// As they were written, without the commas between them.
    pub(super) args: Vec<String>,
    /// What stands behind the equals sign.
    pub(super) result: String,
}

/// All calls, in the order in which they ended.
///
/// # Panics
/// At a line that is nothing that strace is known to write: what is not understood must not pass for nothing.
pub(super) fn calls(log: &str) -> Vec<Call> {
    let mut begun: HashMap<u32, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let (tid, text) = line.split_once(' ').unwrap_or_else(|| unknown(line));
        let tid = tid.parse().unwrap_or_else(|_| unknown(line));
        let text = text.trim_start();
        if text.starts_with("+++ ") || text.starts_with("--- ") {
            continue;
        }
        if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            let before = begun.insert(tid, start.to_owned());
            assert_eq!(before, None, "two calls of {tid} at once: {line}");
            continue;
        }
        let whole = match text.strip_prefix("<... ") {
            Some(rest) => {
                let start = begun.remove(&tid).unwrap_or_else(|| unknown(line));
                let (name, rest) = rest
                    .split_once(" resumed>")
                    .unwrap_or_else(|| unknown(line));
                assert!(start.starts_with(&format!("{name}(")), "{start} and {line}");
                start + rest
            }
            None => text.to_owned(),
        };
        calls.push(call(tid, &whole).unwrap_or_else(|| unknown(line)));
    }
    calls
}

fn unknown<T>(line: &str) -> T {
    panic!("no line of strace's: {line}")
}

fn call(tid: u32, text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    let (args, rest) = arguments(rest)?;
    let result = rest.trim_start().strip_prefix("= ")?;
    Some(Call {
        tid,
        name: name.to_owned(),
        args,
        result: result.to_owned(),
    })
}

/// The arguments up to the closing parenthesis, and what follows it.
fn arguments(text: &str) -> Option<(Vec<String>, &str)> {
    let bytes = text.as_bytes();
    let mut args = Vec::new();
    // What closes the string or the path of a descriptor that we are in.
    let mut closing = None;
    let (mut depth, mut start, mut at) = (0u32, 0, 0);
    while at < bytes.len() {
        let byte = bytes[at];
        match (closing, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(end), _) => {
                if byte == end {
                    closing = None;
                }
            }
            (None, b'"') => closing = Some(b'"'),
            (None, b'<') if at > 0 && bytes[at - 1].is_ascii_alphanumeric() => {
                closing = Some(b'>');
            }
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')') if depth == 0 => {
                let last = text[start..at].trim();
                if !last.is_empty() {
                    args.push(last.to_owned());
                }
                return Some((args, &text[at + 1..]));
            }
            (None, b')' | b']' | b'}') => depth = depth.checked_sub(1)?,
            (None, b',') if depth == 0 => {
                args.push(text[start..at].trim().to_owned());
                start = at + 1;
            }
            (None, _) => {}
        }
        at += 1;
    }
    None
}

/// The text of a string argument that was not cut.
pub(super) fn string(arg: &str) -> Option<String> {
    unescape(arg.strip_prefix('"')?.strip_suffix('"')?)
}

/// The path behind a descriptor: `3</tmp/x>`, `AT_FDCWD</tmp>`; what stands behind the angle bracket is given too.
pub(super) fn path(arg: &str) -> Option<(String, &str)> {
    let (fd, rest) = arg.split_once('<')?;
    if fd != "AT_FDCWD" && fd.parse::<u32>().is_err() {
        return None;
    }
    let (path, rest) = rest.split_once('>')?;
    Some((unescape(path)?, rest))
}

/// Takes back strace's escapes: those of C, with octal and hexadecimal numbers.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            first @ b'0'..=b'7' => {
                let mut value = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = rest.next_if(|digit| (b'0'..=b'7').contains(digit)) else {
                        break;
                    };
                    value = value * 8 + u32::from(digit - b'0');
                }
                u8::try_from(value).ok()?
            }
            other @ (b'\\' | b'"' | b'>' | b'<') => other,
            _ => return None,
        });
    }
    String::from_utf8(bytes).ok()
}

#[test]
fn lines_of_strace_are_read() {
    let check = |log: &str, expect: &[(u32, &str, &[&str], &str)]| {
        let found = calls(log);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.tid, &*it.name, it.args.clone(), &*it.result))
            .collect();
        let expect: Vec<_> = expect
            .iter()
            .map(|&(tid, name, args, result)| {
                let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
                (tid, name, args, result)
            })
            .collect();
        assert_eq!(found, expect, "{log}");
    };
    check(
        r#"7  chdir("/var")                     = 0"#,
        &[(7, "chdir", &[r#""/var""#], "0")],
    );
    check(
        r#"7  openat(AT_FDCWD</v>, "/a<b>\"c) = \\ \303\251\n", O_WRONLY|O_CREAT, 0666) = 3</a\74b\76\"c) = \\ \303\251\n>"#,
        &[(
            7,
            "openat",
            &[
                "AT_FDCWD</v>",
                r#""/a<b>\"c) = \\ \303\251\n""#,
                "O_WRONLY|O_CREAT",
                "0666",
            ],
            r#"3</a\74b\76\"c) = \\ \303\251\n>"#,
        )],
    );
    check(
        "7  vfork( <unfinished ...>\n8  execve(\"/bin/x\", [\"a, b\", \"(\"], 0x1 /* 3 vars */ <unfinished ...>\n7  <... vfork resumed>)              = 8\n8  <... execve resumed>)             = 0\n8  --- SIGCHLD {si_signo=SIGCHLD} ---\n8  +++ exited with 0 +++",
        &[
            (7, "vfork", &[], "8"),
            (
                8,
                "execve",
                &["\"/bin/x\"", "[\"a, b\", \"(\"]", "0x1 /* 3 vars */"],
                "0",
            ),
        ],
    );
    check(
        r#"7  connect(3<socket:[9]>, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")}, 16) = -1 EINPROGRESS (Operation now in progress)"#,
        &[(
            7,
            "connect",
            &[
                "3<socket:[9]>",
                r#"{sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")}"#,
                "16",
            ],
            "-1 EINPROGRESS (Operation now in progress)",
        )],
    );
}

#[test]
fn strings_and_paths_are_read() {
    let text = |expect: &str| Some(expect.to_owned());
    assert_eq!(string(r#""a\"\\\n\303\251\0""#), text("a\"\\\né\0"));
    assert_eq!(string(r#""a"..."#), None);
    assert_eq!(path("AT_FDCWD</v>"), Some(("/v".to_owned(), "")));
    assert_eq!(
        path(r"3</tmp/a\74\76>(deleted)"),
        Some(("/tmp/a<>".to_owned(), "(deleted)"))
    );
    assert_eq!(path("-1 ENOENT (No such file or directory)"), None);
    assert_eq!(path("0"), None);
}
