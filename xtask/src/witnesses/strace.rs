//! What `strace -f -y -o FILE` writes -> calls. Lines of calls that were interrupted by another process' line are joined.

use std::{collections::HashMap, ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

/// Options under which strace writes what is read here; the file for `--output`, and the command, follow. Calls that can make, write,
/// rename or remove a name, start a program or connect, and those that are needed to follow them. A question mark allows a
/// name that this architecture does not have.
pub const OPTIONS: [&str; 6] = [
    "--follow-forks",
    "--seccomp-bpf",
    "--decode-fds=path",
    "--string-limit=4096",
    "--trace=?open,openat,openat2,?creat,?rename,?renameat,renameat2,?unlink,unlinkat,?rmdir,?mkdir,mkdirat,?link,linkat,\
        ?symlink,symlinkat,?mknod,mknodat,truncate,bind,connect,execve,execveat,chdir,fchdir,clone,clone3,?fork,?vfork",
    "--output",
];

/// A system call that came to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The thread.
    pub tid: u32,
    /// What the kernel's table calls it.
    pub name: String,
    /// As they were written, without the commas between them.
    pub args: Vec<String>,
    /// What stands behind the equals sign.
    pub result: String,
}

impl Call {
    /// Whether the kernel refused it, or its thread ended in it.
    pub fn failed(&self) -> bool {
        self.result.starts_with("-1 ") || self.result.starts_with('?')
    }
}

/// All calls, in the order in which they ended.
///
/// # Errors
/// At a line that is nothing that strace is known to write: what is not understood must not pass for nothing.
pub fn calls(log: &str) -> Result<Vec<Call>, String> {
    let mut begun: HashMap<u32, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let unknown = || format!("no line of strace's: {line}");
        let (tid, text) = line.split_once(' ').ok_or_else(unknown)?;
        let tid = tid.parse().map_err(|_| unknown())?;
        let text = text.trim_start();
        if text.starts_with("+++ ") {
            // What an end interrupted has no end of its own.
            begun.remove(&tid);
            continue;
        }
        if text.starts_with("--- ") {
            continue;
        }
        if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            if begun.insert(tid, start.to_owned()).is_some() {
                return Err(format!("two calls at once: {line}"));
            }
            continue;
        }
        let whole = match text.strip_prefix("<... ") {
            Some(rest) => {
                let start = begun.remove(&tid).ok_or_else(unknown)?;
                let (name, rest) = rest.split_once(" resumed>").ok_or_else(unknown)?;
                if !start.starts_with(&format!("{name}(")) {
                    return Err(format!("the end of another call: {start} and {line}"));
                }
                start + rest
            }
            None => text.to_owned(),
        };
        // A thread that was killed in a call.
        if whole.ends_with("<unfinished ...>) = ?") {
            continue;
        }
        calls.push(call(tid, &whole).ok_or_else(unknown)?);
    }
    Ok(calls)
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
pub fn string(arg: &str) -> Option<PathBuf> {
    unescape(arg.strip_prefix('"')?.strip_suffix('"')?)
}

/// The path behind a descriptor: `3</tmp/x>`, `AT_FDCWD</tmp>`; what stands behind the angle bracket is given too.
pub fn path(arg: &str) -> Option<(PathBuf, &str)> {
    let (fd, rest) = arg.split_once('<')?;
    if fd != "AT_FDCWD" && fd.parse::<u32>().is_err() {
        return None;
    }
    let (path, rest) = rest.split_once('>')?;
    Some((unescape(path)?, rest))
}

/// Takes back strace's escapes: those of C, with octal and hexadecimal numbers.
fn unescape(text: &str) -> Option<PathBuf> {
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
    Some(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_strace_are_read() {
        let check = |log: &str, expect: &[(u32, &str, &[&str], &str)]| {
            let found = calls(log).unwrap();
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
    fn calls_that_a_killed_thread_did_not_end_are_none() {
        for log in [
            "7  openat(AT_FDCWD</v>, \"a\", O_WRONLY <unfinished ...>\n7  +++ killed by SIGKILL +++",
            "7  openat(AT_FDCWD</v>, \"a\", O_WRONLY <unfinished ...>) = ?\n7  +++ killed by SIGKILL +++",
            "7  openat(AT_FDCWD</v>, \"a\" <unfinished ...>\n7  <... openat resumed>, <unfinished ...>) = ?\n7  +++ exited with 0 +++",
        ] {
            assert_eq!(calls(log), Ok(vec![]), "{log}");
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for log in [
            "strace: Process 7 attached",
            "7  mkdir(\"a\"",
            "7  <... mkdir resumed>) = 0",
            "7  mkdir(\"a\" <unfinished ...>\n7  rmdir(\"b\" <unfinished ...>",
            "7  mkdir(\"a\" <unfinished ...>\n7  <... rmdir resumed>) = 0",
        ] {
            assert!(calls(log).is_err(), "{log}");
        }
    }

    #[test]
    fn strings_and_paths_are_read() {
        let text = |expect: &str| Some(PathBuf::from(expect));
        assert_eq!(string(r#""a\"\\\n\303\251\0""#), text("a\"\\\né\0"));
        assert_eq!(string(r#""a"..."#), None);
        assert_eq!(path("AT_FDCWD</v>"), Some(("/v".into(), "")));
        assert_eq!(
            path(r"3</tmp/a\74\76>(deleted)"),
            Some(("/tmp/a<>".into(), "(deleted)"))
        );
        assert_eq!(path("-1 ENOENT (No such file or directory)"), None);
        assert_eq!(path("0"), None);
    }
}
