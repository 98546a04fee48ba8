//! What a job may not reach: its contract's refusals, with what they mean on this host when the job begins.
//!
//! A program that is refused by a name or a path is found then, and known from there on by its identity, under whatever name, and by
//! its content: a copy is the same program.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
};

use capgate_common::{
    glob::GlobError,
    pathform::{Forms, unescape},
    refuse::Refusals,
};

/// Most programs that are kept open for comparison.
const MOST_ORIGINALS: usize = 64;
/// Bytes of two programs of one size that are compared; beyond that they are taken to be the same.
const MOST_COMPARED: u64 = 256 << 20;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A job's refusals that cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum RefusedError {
    /// What a symbolic link leads to makes no pattern.
    #[error("cannot follow the links of what the contract refuses: {0}")]
    Followed(#[from] GlobError),
    /// Too many.
    #[error(
        "the contract's `refuse` names {0} programs that are there, more than the {MOST_ORIGINALS} that are watched; name fewer"
    )]
    TooMany(usize),
}

/// What a session looks out for.
pub struct Refused {
    /// The refusals, symbolic links in their paths followed.
    pub refusals: Refusals,
    /// The refused programs that were there.
    pub originals: Vec<Original>,
    /// Directory of the programs that refuse, in the job's mount tree.
    pub shims: Option<Vec<u8>>,
}

/// A refused program as it was when the job began.
pub struct Original {
    /// Its entry.
    pub entry: String,
    /// Device (`major << 20 | minor`) and inode.
    pub id: (u32, u64),
    /// Bytes.
    pub size: u64,
    /// It begins with `#!`.
    pub is_script: bool,
    /// Open for reading, so that it is there when the job takes it away.
    file: File,
}

impl Original {
    /// Whether another file is a copy. An error when that cannot be told.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn is_copied_in(&self, other: &File) -> io::Result<bool> {
        let mut at = 0;
        let (mut mine, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
        while at < self.size.min(MOST_COMPARED) {
            let left = usize::try_from(self.size - at).unwrap_or(CHUNK).min(CHUNK);
            self.file.read_exact_at(&mut mine[..left], at)?;
            other.read_exact_at(&mut theirs[..left], at)?;
            if mine[..left] != theirs[..left] {
                return Ok(false);
            }
            at += left as u64;
        }
        Ok(true)
    }
}

/// Device (`major << 20 | minor`), inode and size of an open file.
#[must_use]
pub fn identity(file: &File) -> Option<((u32, u64), u64)> {
    let found = file.metadata().ok()?;
    let device = found.dev();
    let device = libc::major(device) << 20 | libc::minor(device);
    Some(((device, found.ino()), found.size()))
}

/// Where a job's files are.
pub struct Place<'a> {
    /// How paths are written.
    pub forms: &'a Forms,
    /// The client's `PATH`.
    pub search: &'a str,
    /// The path in the job's mount tree of something that exists, symbolic links resolved.
    pub real: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Opens a file at such a path.
    pub open: &'a dyn Fn(&[u8]) -> Option<File>,
}

impl Refused {
    /// Finds what the refusals mean now.
    ///
    /// # Errors
    /// When it is too much, or cannot be told.
    pub fn find(
        refusals: &Refusals,
        shims: Option<&str>,
        place: &Place<'_>,
    ) -> Result<Self, RefusedError> {
        let followed = refusals.followed(place.forms, place.real)?;
        let mut originals: Vec<Original> = Vec::new();
        for path in candidates(refusals, place) {
            let Some(original) = original(&path, place) else {
                continue;
            };
            if originals.iter().all(|known| known.id != original.id) {
                originals.push(original);
            }
        }
        if originals.len() > MOST_ORIGINALS {
            return Err(RefusedError::TooMany(originals.len()));
        }
        let shims = shims.and_then(unescape).map(|path| {
            let real = (place.real)(&path);
            real.unwrap_or(path)
        });
        Ok(Self {
            refusals: followed,
            originals,
            shims,
        })
    }

    /// The name of a program that refuses, by its path.
    #[must_use]
    pub fn shim<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let name = path.strip_prefix(self.shims.as_deref()?)?;
        name.strip_prefix(b"/")
    }
}

/// Paths at which refused programs may be.
fn candidates(refusals: &Refusals, place: &Place<'_>) -> Vec<Vec<u8>> {
    // A relative directory means another one wherever it is used.
    let directories = place.search.split(':').filter(|it| it.starts_with('/'));
    let mut paths = Vec::new();
    for directory in directories {
        for name in refusals.program_names() {
            let mut path = directory.as_bytes().to_vec();
            path.push(b'/');
            path.extend(unescape(name).unwrap_or_default());
            paths.push(path);
        }
    }
    let written = refusals.program_paths();
    paths.extend(written.filter_map(|entry| place.forms.path_of(entry)));
    paths
}

fn original(path: &[u8], place: &Place<'_>) -> Option<Original> {
    let real = (place.real)(path)?;
    // One program under many names, such as busybox, does what it is called for: there the name counts alone.
    if leaf(&real) != leaf(path) {
        return None;
    }
    let file = (place.open)(&real)?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.mode() & 0o111 == 0 || found.size() == 0 {
        return None;
    }
    let (id, size) = identity(&file)?;
    let entry = place.forms.form(&real, &|_| false)?.entry;
    let mut begins = [0; 2];
    file.read_exact_at(&mut begins, 0).ok()?;
    Some(Original {
        entry,
        id,
        size,
        is_script: begins == *b"#!",
        file,
    })
}

/// The last name of a path.
#[must_use]
pub fn leaf(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Programs that run the file which an argument names, by their names without a version, and the letters of the options after which
/// there is none: what they run is in the argument itself, or a module.
const INTERPRETERS: [(&str, &str); 23] = [
    ("ash", "c"),
    ("bash", "c"),
    ("bun", "e"),
    ("dash", "c"),
    ("deno", ""),
    ("fish", "c"),
    ("ksh", "c"),
    ("ld", ""),
    ("lua", "e"),
    ("luajit", "e"),
    ("mksh", "c"),
    ("node", "ep"),
    ("nodejs", "ep"),
    ("perl", "eE"),
    ("php", "r"),
    ("pypy", "cm"),
    ("python", "cm"),
    ("ruby", "e"),
    ("sh", "c"),
    ("tclsh", ""),
    ("wish", ""),
    ("yash", "c"),
    ("zsh", "c"),
];

/// Programs that are what they are called, or what their first argument calls.
const MULTI_CALL: [&[u8]; 2] = [b"busybox", b"toybox"];

/// The arguments of an interpreter that may name the file which it runs, in order; empty for any other program.
#[must_use]
pub fn scripts<'a>(program: &[u8], argv: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    let mut arguments = argv.iter().map(Vec::as_slice);
    let called = arguments.next().map(leaf).unwrap_or_default();
    let name = match leaf(program) {
        name if !MULTI_CALL.contains(&name) => name,
        _ if !MULTI_CALL.contains(&called) => called,
        _ => arguments.next().unwrap_or_default(),
    };
    // `python3.11`, `ld-linux-x86-64.so.2`.
    let end = name.iter().position(|byte| !byte.is_ascii_alphabetic());
    let name = &name[..end.unwrap_or(name.len())];
    let Some((_, letters)) = INTERPRETERS
        .iter()
        .find(|(known, _)| known.as_bytes() == name)
    else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for argument in arguments {
        match argument {
            b"-" => break,
            [b'-', b'-', ..] => {}
            [b'-', cluster @ ..] => {
                if cluster
                    .iter()
                    .any(|letter| letters.as_bytes().contains(letter))
                {
                    break;
                }
            }
            argument => files.push(argument),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::scripts;

    fn check(line: &str, expect: &str) {
        let argv: Vec<Vec<u8>> = line
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        let found: Vec<String> = scripts(&argv[0], &argv)
            .iter()
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        assert_eq!(found.join(" "), expect, "{line}");
    }

    #[test]
    fn an_interpreter_runs_what_its_arguments_name() {
        check(
            "/usr/bin/python3.11 /opt/az/az.py login",
            "/opt/az/az.py login",
        );
        check("python3 -W ignore az.py", "ignore az.py");
        check("/bin/sh -e az", "az");
        check(
            "/lib64/ld-linux-x86-64.so.2 --argv0 x /usr/bin/az",
            "x /usr/bin/az",
        );
        check("/bin/busybox sh az", "az");
    }

    #[test]
    fn a_command_or_module_is_no_file() {
        check("/bin/sh -ec az /usr/bin/az", "");
        check("python3 -m pytest az", "");
        check("python3 -c x az", "");
        check("perl -ne x az", "");
        check("bash - az", "");
        check("perl -w az", "az");
    }

    #[test]
    fn other_programs_run_no_arguments() {
        check("/usr/bin/cat /usr/bin/az", "");
        check("/usr/bin/ldd /usr/bin/az", "");
        check("/usr/bin/shasum az", "");
        check("/bin/busybox cat az", "");
        assert!(scripts(b"/bin/busybox", &[b"cat".to_vec(), b"az".to_vec()]).is_empty());
        let shell = [b"/bin/sh".to_vec(), b"az".to_vec()];
        assert_eq!(scripts(b"/bin/busybox", &shell), [b"az"]);
    }
}
