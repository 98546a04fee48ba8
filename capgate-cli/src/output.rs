//! The files that a run leaves behind: found before the job runs, written after it, never through anything that the job made.
//!
//! The directory is opened before the job starts and the file is put into that very directory, under a new name and then
//! renamed: a symbolic link, a fifo or another directory that the job puts in the way changes nothing but this one name.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{self, AtFlags, OFlag},
    sys::stat::{self, Mode, SFlag},
    unistd::{self, UnlinkatFlags},
};

use crate::shown::shown;

/// How often a new name is tried before giving up. A name can be taken only by what a killed client left behind.
const TRIES: u32 = 100;

/// A file that is to be written.
#[derive(Debug)]
pub(crate) struct Output {
    what: &'static str,
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
}

/// An output that cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The path has no file name.
    #[error(
        "cannot write the {what} to {path}: it names no file; give a file in an existing directory"
    )]
    NoName {
        /// Which file.
        what: &'static str,
        /// As given.
        path: String,
    },
    /// The directory cannot be used.
    #[error("cannot write the {what} to {path}: cannot open its directory: {cause}")]
    Directory {
        /// Which file.
        what: &'static str,
        /// As given.
        path: String,
        /// The system's answer.
        cause: Errno,
    },
    /// Something is there that is not a file.
    #[error("cannot write the {what} to {path}: {kind} is there; remove it or name another file")]
    InTheWay {
        /// Which file.
        what: &'static str,
        /// As given.
        path: String,
        /// What is there.
        kind: &'static str,
    },
    /// The old file cannot be removed.
    #[error("cannot remove the old {what} {path}: {cause}")]
    Old {
        /// Which file.
        what: &'static str,
        /// As given.
        path: String,
        /// The system's answer.
        cause: Errno,
    },
    /// The new file cannot be written.
    #[error("cannot write the {what} to {path}: {cause}")]
    Write {
        /// Which file.
        what: &'static str,
        /// As given.
        path: String,
        /// The system's answer.
        cause: io::Error,
    },
}

impl Output {
    /// Finds the place of `path` and removes what an earlier run left there, so that no failed run can be mistaken for it.
    ///
    /// # Errors
    /// When the directory is missing, something else than a file is there, or the old file cannot be removed.
    pub(crate) fn prepare(what: &'static str, path: &Path) -> Result<Self, OutputError> {
        let output = Self::find(what, path)?;
        output.remove_old()?;
        Ok(output)
    }

    /// Finds the place of `path` and leaves there what is there, until the new file takes its place.
    ///
    /// # Errors
    /// When the directory is missing.
    pub(crate) fn find(what: &'static str, path: &Path) -> Result<Self, OutputError> {
        let Some(name) = path.file_name() else {
            return Err(OutputError::NoName {
                what,
                path: shown(path),
            });
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = fcntl::open(
            parent,
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|cause| OutputError::Directory {
            what,
            path: shown(path),
            cause,
        })?;
        Ok(Self {
            what,
            directory,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Where the file goes, as the user knows it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn remove_old(&self) -> Result<(), OutputError> {
        let name = self.name.as_os_str();
        let old = match stat::fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(()),
            Err(cause) => return Err(self.old(cause)),
            Ok(old) => old,
        };
        let kind = match SFlag::from_bits_truncate(old.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG | SFlag::S_IFLNK => {
                let removed = unistd::unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
                return match removed {
                    // Another client that writes the same file was faster.
                    Err(Errno::ENOENT) | Ok(()) => Ok(()),
                    Err(cause) => Err(self.old(cause)),
                };
            }
            SFlag::S_IFDIR => "a directory",
            SFlag::S_IFIFO => "a fifo",
            SFlag::S_IFSOCK => "a socket",
            _ => "a device",
        };
        Err(OutputError::InTheWay {
            what: self.what,
            path: shown(&self.path),
            kind,
        })
    }

    fn old(&self, cause: Errno) -> OutputError {
        OutputError::Old {
            what: self.what,
            path: shown(&self.path),
            cause,
        }
    }

    /// Writes the file: whole or not at all.
    ///
    /// # Errors
    /// When the system refuses; nothing is left behind then.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        self.write_with(bytes, None)
    }

    /// Writes the file in the place of one that is there, with its mode: whole, or the old one stays.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), OutputError> {
        let old = stat::fstatat(
            &self.directory,
            self.name.as_os_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        let mode = old.ok().map(|old| Mode::from_bits_truncate(old.st_mode));
        self.write_with(bytes, mode)
    }

    fn write_with(&self, bytes: &[u8], mode: Option<Mode>) -> Result<(), OutputError> {
        self.try_write(bytes, mode)
            .map_err(|cause| OutputError::Write {
                what: self.what,
                path: shown(&self.path),
                cause,
            })
    }

    fn try_write(&self, bytes: &[u8], mode: Option<Mode>) -> io::Result<()> {
        let (name, mut file) = self.create_new()?;
        let made = stat::fstat(&file)?;
        let written = file.write_all(bytes).and_then(|()| {
            if let Some(mode) = mode {
                stat::fchmod(&file, mode)?;
            }
            fcntl::renameat(
                &self.directory,
                name.as_os_str(),
                &self.directory,
                self.name.as_os_str(),
            )
            .map_err(io::Error::from)
        });
        if written.is_err() {
            // The first error is the one to tell.
            let _ = unistd::unlinkat(
                &self.directory,
                name.as_os_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
        written?;
        // What the user finds under the path has to be this file: the job may have put another directory there.
        let found = stat::lstat(&self.path).map(|found| (found.st_dev, found.st_ino));
        if found != Ok((made.st_dev, made.st_ino)) {
            return Err(io::Error::other(
                "the job moved its directory away, and the file went with it; name a place that the job leaves alone",
            ));
        }
        Ok(())
    }

    fn create_new(&self) -> io::Result<(OsString, File)> {
        let mut last = Errno::EEXIST;
        for number in 0..TRIES {
            let name = temporary_name(&self.name, number);
            match fcntl::openat(
                self.directory.as_fd(),
                name.as_os_str(),
                OFlag::O_WRONLY
                    | OFlag::O_CREAT
                    | OFlag::O_EXCL
                    | OFlag::O_NOFOLLOW
                    | OFlag::O_CLOEXEC,
                Mode::from_bits_truncate(0o666),
            ) {
                Ok(fd) => return Ok((name, File::from(fd))),
                Err(Errno::EEXIST) => last = Errno::EEXIST,
                Err(cause) => return Err(cause.into()),
            }
        }
        Err(last.into())
    }
}

/// A name beside `name` that no other client uses. Short enough where `name` is as long as names can be.
fn temporary_name(name: &OsStr, number: u32) -> OsString {
    let tail = format!(".{}.{number}.tmp", std::process::id());
    let keep = name.as_bytes().len().min(200);
    let mut temporary = OsString::from(".");
    temporary.push(OsStr::from_bytes(&name.as_bytes()[..keep]));
    temporary.push(tail);
    temporary
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::Output;

    fn fresh() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn a_file_is_written_whole_and_nothing_else_is_left() {
        let dir = fresh();
        let path = dir.path().join("out.json");
        let output = Output::prepare("ledger", &path).expect("prepared");
        output.write(b"{}\n").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"{}\n");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn an_old_file_is_gone_before_the_job_runs() {
        let dir = fresh();
        let path = dir.path().join("out.json");
        fs::write(&path, "old").expect("old file");
        Output::prepare("ledger", &path).expect("prepared");
        assert!(!path.exists());
    }

    #[test]
    fn a_symbolic_link_put_in_the_way_is_replaced_not_followed() {
        let dir = fresh();
        let path = dir.path().join("out.json");
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").expect("victim");
        let output = Output::prepare("ledger", &path).expect("prepared");
        symlink(&victim, &path).expect("link");
        output.write(b"{}").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "mine");
        assert!(fs::symlink_metadata(&path).expect("stat").is_file());
    }

    #[test]
    fn a_directory_that_the_job_swaps_does_not_get_the_file_and_that_is_an_error() {
        let dir = fresh();
        let tests = dir.path().join("tests");
        fs::create_dir(&tests).expect("directory");
        let output = Output::prepare("ledger", &tests.join("out.json")).expect("prepared");
        fs::rename(&tests, dir.path().join("moved")).expect("rename");
        fs::create_dir(&tests).expect("another");
        let error = output.write(b"{}").expect_err("not where it was to be");
        assert!(
            error.to_string().contains("moved its directory away"),
            "{error}"
        );
        assert!(!tests.join("out.json").exists());
    }

    #[test]
    fn what_cannot_be_written_is_said_in_a_sentence() {
        let dir = fresh();
        let missing = dir.path().join("no/out.json");
        let error = Output::prepare("ledger", &missing).expect_err("no directory");
        assert!(error.to_string().contains("cannot open its directory"));
        let error = Output::prepare("ledger", dir.path()).expect_err("a directory");
        assert!(error.to_string().contains("a directory is there"));
        let error = Output::prepare("ledger", "/".as_ref()).expect_err("no name");
        assert!(error.to_string().contains("it names no file"));
        let removed = dir.path().join("gone");
        fs::create_dir(&removed).expect("directory");
        let output = Output::prepare("ledger", &removed.join("out.json")).expect("prepared");
        fs::remove_dir(&removed).expect("removed");
        let error = output.write(b"{}").expect_err("no directory any more");
        assert!(error.to_string().starts_with("cannot write the ledger to"));
    }

    #[test]
    fn a_very_long_name_still_gets_its_file() {
        let dir = fresh();
        let path = dir.path().join("x".repeat(255));
        let output = Output::prepare("ledger", &path).expect("prepared");
        output.write(b"{}").expect("written");
        assert!(path.exists());
    }
}
