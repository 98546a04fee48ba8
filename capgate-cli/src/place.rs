//! Where a run takes place: the root directory, the contract, and where the ledger goes.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use capgate_common::{contract, ledger};
use nix::unistd;

use crate::shown::shown;

/// A place that cannot be used. One sentence each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The working directory is gone.
    #[error("cannot find the working directory: {0}; change to one that exists")]
    Cwd(io::Error),
    /// The root directory cannot be used.
    #[error("cannot use {path} as the root directory: {cause}; name one that exists with --root")]
    Root {
        /// As given or found.
        path: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// A repository that somebody else may have put there.
    #[error(
        "the repository {path} belongs to uid {owner}, neither to you nor to who owns the working directory; \
         if it is yours name it with --root"
    )]
    Foreign {
        /// The repository's top directory.
        path: String,
        /// Who owns its `.git`.
        owner: u32,
    },
    /// There is no contract.
    #[error(
        "there is no contract at {path}; write one with capgate init -- CMD, name another file with --contract, \
         or record without a gate with --record"
    )]
    NoContract {
        /// Where it was looked for.
        path: String,
    },
    /// The contract cannot be read.
    #[error("cannot read the contract {path}: {cause}")]
    Contract {
        /// Which file.
        path: String,
        /// The system's answer, or what is wrong with the file.
        cause: io::Error,
    },
}

/// The job's root directory: what was asked for, else the top of the git work tree, else the working directory.
///
/// # Errors
/// When the directory is not there, or a repository was found that another user may have put there.
pub(crate) fn root(asked: Option<&Path>) -> Result<PathBuf, PlaceError> {
    if let Some(asked) = asked {
        return directory(asked);
    }
    let cwd = std::env::current_dir().map_err(PlaceError::Cwd)?;
    let top = git_top(&cwd)?;
    directory(&top.unwrap_or(cwd))
}

/// An absolute path without symbolic links of a directory that exists.
fn directory(path: &Path) -> Result<PathBuf, PlaceError> {
    let refuse = |cause| PlaceError::Root {
        path: shown(path),
        cause,
    };
    let real = fs::canonicalize(path).map_err(refuse)?;
    if !fs::metadata(&real).map_err(refuse)?.is_dir() {
        return Err(refuse(io::ErrorKind::NotADirectory.into()));
    }
    Ok(real)
}

/// The closest directory at or above `from` that holds a git repository, on the same file system, as git looks for it.
///
/// `GIT_DIR` and `GIT_WORK_TREE` are not followed: git sets them for its hooks, and a root that moves with the environment
/// would give one behaviour two ledgers.
///
/// # Errors
/// When a repository was found that another user may have put there, or `from` is gone.
pub(crate) fn git_top(from: &Path) -> Result<Option<PathBuf>, PlaceError> {
    let here = fs::metadata(from).map_err(PlaceError::Cwd)?;
    for directory in from.ancestors() {
        match fs::metadata(directory) {
            Ok(it) if it.dev() == here.dev() => {}
            _ => return Ok(None),
        }
        if let Some(git) = repository(&directory.join(".git")) {
            // Anybody may put a repository, with a contract of their own, into a directory such as /tmp.
            let mine = [unistd::geteuid().as_raw(), 0, here.uid()];
            if !mine.contains(&git.uid()) {
                return Err(PlaceError::Foreign {
                    path: shown(directory),
                    owner: git.uid(),
                });
            }
            return Ok(Some(directory.to_owned()));
        }
    }
    Ok(None)
}

/// What git takes for a repository: a directory with a `HEAD`, or a file that says where the repository is (work trees,
/// submodules).
fn repository(git: &Path) -> Option<Metadata> {
    let found = fs::metadata(git).ok()?;
    let real = if found.is_dir() {
        fs::symlink_metadata(git.join("HEAD")).is_ok()
    } else if found.is_file() {
        let mut start = [0; 7];
        File::open(git)
            .and_then(|mut file| file.read_exact(&mut start))
            .is_ok()
            && &start == b"gitdir:"
    } else {
        false
    };
    real.then_some(found)
}

/// A contract's text and where it came from.
#[derive(Debug)]
pub(crate) struct ContractFile {
    /// The file, absolute, as it was called: a symbolic link at its place is the contract as much as the file behind it.
    pub(crate) path: PathBuf,
    /// The text.
    pub(crate) text: String,
}

/// Where the contract is: what was asked for, else the default below the root.
pub(crate) fn contract_path(asked: Option<&Path>, root: &Path) -> PathBuf {
    asked.map_or_else(|| root.join(contract::DEFAULT_PATH), Path::to_owned)
}

/// Reads the contract; `None` when there is none and none is needed.
///
/// # Errors
/// When it is missing and needed, or cannot be read.
pub(crate) fn contract(path: &Path, needed: bool) -> Result<Option<ContractFile>, PlaceError> {
    match read_text(path, contract::MAX_BYTES) {
        Ok(text) => {
            let absolute = std::path::absolute(path).map_err(|cause| PlaceError::Contract {
                path: shown(path),
                cause,
            })?;
            Ok(Some(ContractFile {
                path: absolute,
                text,
            }))
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            if needed {
                Err(PlaceError::NoContract { path: shown(path) })
            } else {
                Ok(None)
            }
        }
        Err(cause) => Err(PlaceError::Contract {
            path: shown(path),
            cause,
        }),
    }
}

/// Where the ledger goes: what was asked for, else beside the contract, else, without a contract, into the root.
pub(crate) fn ledger_path(asked: Option<&Path>, contract: Option<&Path>, root: &Path) -> PathBuf {
    match (asked, contract) {
        (Some(asked), _) => asked.to_owned(),
        (None, Some(contract)) => contract.with_file_name(ledger::FILE_NAME),
        (None, None) => root.join(ledger::FILE_NAME),
    }
}

/// Reads a regular file of at most `limit` bytes of UTF-8.
///
/// # Errors
/// When it cannot be read, is something else than a file, is larger, or is not UTF-8.
pub(crate) fn read_text(path: &Path, limit: usize) -> io::Result<String> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = File::options()
        .read(true)
        // A fifo must not keep us waiting for a writer.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(wrong("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(wrong(format!("it is larger than {limit} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))
}
