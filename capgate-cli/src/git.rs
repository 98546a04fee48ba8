//! What a commit holds, asked of git.
//!
//! The repository may be hostile, so only commands are used that read objects, and nothing that its configuration names can run:
//! no hooks, no fsmonitor, no pager, no remote of a partial clone. Nothing of the environment, the user or the system changes the
//! answer either, nor do replaced objects. See `docs/decisions/git.md`.

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use capgate_common::pathform::escape;

pub(crate) use error::GitError;

use crate::{
    local::find_in_path,
    shown::{harmless, shown},
};

mod error;

/// Most bytes of a commit's list of names.
const MAX_NAMES: u64 = 256 << 20;
/// Most bytes of a short answer.
const MAX_ANSWER: u64 = 4096;
/// Settings that keep a repository's configuration from running anything, and its caches from changing the answer.
const SETTINGS: [&str; 9] = [
    "advice.graftFileDeprecated=false",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.commitGraph=false",
    "core.warnAmbiguousRefs=true",
    "protocol.allow=never",
    "credential.helper=",
];
/// The environment that git gets beside its own: no other configuration, no questions, no network, no replaced objects.
const ENVIRONMENT: [(&str, &str); 9] = [
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_GRAFT_FILE", "/dev/null"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
];

/// A repository.
#[derive(Debug)]
pub(crate) struct Repository {
    program: PathBuf,
    top: PathBuf,
}

/// A commit of a repository.
#[derive(Debug)]
pub(crate) struct Commit<'a> {
    repository: &'a Repository,
    /// Its full name in hex.
    id: String,
    /// As the user knows it.
    reference: String,
}

/// What git answered.
struct Answer {
    succeeded: bool,
    stdout: Vec<u8>,
    stderr: String,
}

impl Repository {
    /// The repository whose work tree has this top directory.
    ///
    /// # Errors
    /// When there is no git.
    pub(crate) fn at(top: &Path) -> Result<Self, GitError> {
        let program = find_in_path("git")
            .ok_or_else(|| GitError::NoGit(format!("the repository {}", shown(top))))?;
        Ok(Self {
            program,
            top: top.to_owned(),
        })
    }

    /// The top directory of the work tree.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// The commit that a reference names: a branch, a tag, a hash, or `A...B` for the merge base, where an empty side is `HEAD`.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(crate) fn commit(&self, reference: &str) -> Result<Commit<'_>, GitError> {
        let id = match reference.split_once("...") {
            Some((one, other)) => self.merge_base(or_head(one), or_head(other))?,
            None => self.resolve(reference)?,
        };
        Ok(Commit {
            repository: self,
            id,
            reference: harmless(reference),
        })
    }

    fn resolve(&self, reference: &str) -> Result<String, GitError> {
        let strange = |it: char| it.is_control() || it.is_whitespace() || it == ':';
        if reference.is_empty() || reference.starts_with('-') || reference.contains(strange) {
            return Err(GitError::Reference(harmless(reference)));
        }
        let what = format!("`{}`", harmless(reference));
        let peeled = format!("{reference}^{{commit}}");
        let answer = self.ask(&what, &["rev-parse", "--verify", &peeled], MAX_ANSWER)?;
        if answer.stderr.contains("is ambiguous") {
            return Err(GitError::Ambiguous(harmless(reference)));
        }
        match id(&answer) {
            Some(id) => Ok(id),
            None if is_missing(&answer.stderr) => {
                let shallow = self.is_shallow()?;
                Err(GitError::NoCommit {
                    reference: harmless(reference),
                    top: shown(&self.top),
                    shallow,
                    hint: fetch_hint(reference, shallow),
                })
            }
            None => Err(answer.failure(what)),
        }
    }

    fn merge_base(&self, one: &str, other: &str) -> Result<String, GitError> {
        let what = format!(
            "the merge base of `{}` and `{}`",
            harmless(one),
            harmless(other)
        );
        let (first, second) = (self.resolve(one)?, self.resolve(other)?);
        let answer = self.ask(&what, &["merge-base", &first, &second], MAX_ANSWER)?;
        match id(&answer) {
            Some(id) => Ok(id),
            None if answer.stderr.is_empty() => {
                let shallow = self.is_shallow()?;
                Err(GitError::NoMergeBase {
                    one: harmless(one),
                    other: harmless(other),
                    top: shown(&self.top),
                    shallow,
                    hint: if shallow {
                        "fetch the rest with git fetch --unshallow"
                    } else {
                        "name the base commit itself"
                    },
                })
            }
            None => Err(answer.failure(what)),
        }
    }

    fn is_shallow(&self) -> Result<bool, GitError> {
        let what = "whether the clone is shallow";
        let answer = self.ask(what, &["rev-parse", "--is-shallow-repository"], MAX_ANSWER)?;
        Ok(answer.stdout.starts_with(b"true"))
    }

    /// Runs git; comes back with at most `limit` bytes of its answer and one more, by which a caller sees that there were more.
    fn ask(&self, what: &str, arguments: &[&str], limit: u64) -> Result<Answer, GitError> {
        let start = |cause| GitError::Start {
            what: what.to_owned(),
            cause,
        };
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"GIT_") {
                command.env_remove(name);
            }
        }
        command.envs(ENVIRONMENT).current_dir("/");
        // Given, not found: then git asks nobody whose it is. That has been settled by who found the top directory.
        let mut directory = std::ffi::OsString::from("--git-dir=");
        directory.push(self.top.join(".git"));
        command
            .arg(directory)
            .args(["--no-pager", "--literal-pathspecs"]);
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let talk = child.stderr.take();
        // Both streams are read at once: a full one would stop git for ever.
        let talk = std::thread::spawn(move || read(talk, MAX_ANSWER));
        let stdout = read(child.stdout.take(), limit.saturating_add(1)).map_err(start)?;
        let status = child.wait().map_err(start)?;
        let stderr = talk
            .join()
            .map_err(|_| start(io::Error::other("its talk was lost")))?
            .map_err(start)?;
        // One that had more to say than is read dies of that.
        let cut = u64::try_from(stdout.len()).is_ok_and(|length| length > limit);
        Ok(Answer {
            succeeded: status.success() || cut,
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    }
}

impl Commit<'_> {
    /// Its full name in hex, which no later change of a reference moves.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// As a report names it: what the user wrote, and the commit that it was.
    pub(crate) fn shown(&self) -> String {
        let short = self.id.get(..12).unwrap_or(&self.id);
        if self.id.starts_with(&self.reference) {
            short.to_owned()
        } else {
            format!("{} ({short})", self.reference)
        }
    }

    /// The text of a file, by its path from the top; `None` when the commit has none there.
    ///
    /// # Errors
    /// When something else than a file of at most `limit` bytes of UTF-8 is there.
    pub(crate) fn text(&self, path: &[u8], limit: u64) -> Result<Option<String>, GitError> {
        let name = || harmless(&escape(path));
        let what = format!("{} at {}", name(), self.shown());
        let file = OsStr::from_bytes(path);
        let Some(file) = file.to_str() else {
            return Err(GitError::NotText {
                path: name(),
                reference: self.shown(),
            });
        };
        let list = ["ls-tree", "-z", "--full-tree", &self.id, "--", file];
        let answer = self
            .repository
            .ask(&what, &list, MAX_ANSWER)?
            .checked(&what)?;
        // `100644 blob HASH\tNAME\0`
        let entry = String::from_utf8_lossy(&answer.stdout).into_owned();
        let Some((head, _)) = entry.split_once('\t') else {
            return Ok(None);
        };
        let mut words = head.split(' ');
        let kind = match (words.next(), words.next()) {
            (Some("120000"), _) => Some("a symbolic link"),
            (Some("160000"), _) => Some("a submodule"),
            (_, Some("blob")) => None,
            _ => Some("a directory"),
        };
        if let Some(kind) = kind {
            return Err(GitError::NotAFile {
                path: name(),
                reference: self.shown(),
                kind,
            });
        }
        let blob = words.next().unwrap_or_default();
        let show = ["cat-file", "blob", blob];
        let answer = self.repository.ask(&what, &show, limit)?.checked(&what)?;
        if u64::try_from(answer.stdout.len()).is_ok_and(|length| length > limit) {
            return Err(GitError::TooLarge {
                path: name(),
                reference: self.shown(),
                limit,
            });
        }
        match String::from_utf8(answer.stdout) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(GitError::NotText {
                path: name(),
                reference: self.shown(),
            }),
        }
    }

    /// The paths of all files that the commit tracks, from the top.
    ///
    /// # Errors
    /// When they cannot be listed, or are too many.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>, GitError> {
        let what = format!("the names of {}", self.shown());
        let list = [
            "ls-tree",
            "-r",
            "-z",
            "--name-only",
            "--full-tree",
            &self.id,
        ];
        let answer = self
            .repository
            .ask(&what, &list, MAX_NAMES)?
            .checked(&what)?;
        if u64::try_from(answer.stdout.len()).is_ok_and(|length| length > MAX_NAMES) {
            return Err(GitError::TooLarge {
                path: "the list of names".to_owned(),
                reference: self.shown(),
                limit: MAX_NAMES,
            });
        }
        let names = answer.stdout.split(|&byte| byte == 0);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }
}

impl Answer {
    fn checked(self, what: &str) -> Result<Self, GitError> {
        if self.succeeded {
            Ok(self)
        } else {
            Err(self.failure(what.to_owned()))
        }
    }

    fn failure(&self, what: String) -> GitError {
        let last = self.stderr.lines().rfind(|line| !line.trim().is_empty());
        GitError::Failed {
            what,
            said: harmless(last.unwrap_or("nothing")),
        }
    }
}

fn read(stream: Option<impl Read>, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The commit's name that an answer holds.
fn id(answer: &Answer) -> Option<String> {
    let text = std::str::from_utf8(&answer.stdout).ok()?.trim_end();
    let is_id = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (answer.succeeded && is_id).then(|| text.to_owned())
}

/// Whether git says that it does not know a name, and not that something is wrong.
fn is_missing(stderr: &str) -> bool {
    [
        "Needed a single revision",
        "unknown revision",
        "bad revision",
    ]
    .iter()
    .any(|phrase| stderr.contains(phrase))
}

fn or_head(side: &str) -> &str {
    if side.is_empty() { "HEAD" } else { side }
}

/// How to get a commit that is not here.
fn fetch_hint(reference: &str, shallow: bool) -> String {
    let shown = harmless(reference);
    if reference == "HEAD" {
        return "commit something first".to_owned();
    }
    if reference.contains(['^', '~', '@']) {
        return if shallow {
            "fetch more of its history with git fetch --deepen=1, or all with git fetch --unshallow"
                .to_owned()
        } else {
            format!("git rev-parse {shown} says why")
        };
    }
    let depth = if shallow { "--depth=1 " } else { "" };
    let is_hash = reference.len() >= 7 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
    let tracking = reference.strip_prefix("refs/remotes/").unwrap_or(reference);
    match tracking.split_once('/') {
        _ if is_hash => format!("fetch it with git fetch {depth}origin {shown}"),
        Some((remote, branch)) if !reference.starts_with("refs/heads/") => {
            let (remote, branch) = (harmless(remote), harmless(branch));
            format!(
                "fetch it with git fetch {depth}{remote} +refs/heads/{branch}:refs/remotes/{remote}/{branch}"
            )
        }
        _ => format!(
            "fetch it with git fetch {depth}origin {shown}, and name it as origin/{shown} or FETCH_HEAD"
        ),
    }
}
