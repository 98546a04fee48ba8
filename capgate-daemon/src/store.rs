//! Sealed jobs on disk: `jobs/ID/` with `job.json` (what a list shows), `ledger.json`, `evidence.json` and `closing.json`
//! (the rest of what `show` needs).
//!
//! `job.json` is written when a job begins and replaced, last and at once, when it is sealed: a job whose `job.json` says
//! that it runs, and that no daemon runs, is lost. Nothing has to be written to make it so.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use capgate_common::{
    compare::Judgement,
    evidence::Evidence,
    ledger::Ledger,
    protocol::{JobInfo, Outcome, Sealed},
};
use nix::fcntl::{Flock, FlockArg};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::{
    config::Retention,
    id::{self, JobId},
    support::parent_of,
};

/// The state of a job that was sealed.
pub const DONE: &str = "done";
/// The state of a job whose client or daemon went away.
pub const LOST: &str = "lost";

const JOB: &str = "job.json";
const LEDGER: &str = "ledger.json";
const EVIDENCE: &str = "evidence.json";
const CLOSING: &str = "closing.json";
/// What a file is called until it is whole.
const PART: &str = ".part";

/// What is kept of a job for lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// As `ps` shows it.
    pub info: JobInfo,
    /// It was started by one of the host's own processes, see [`crate::peer::Home`].
    pub home: bool,
}

/// What a sealed job has besides ledger and evidence.
#[derive(Serialize, Deserialize)]
struct Closing {
    contract: Option<String>,
    contract_source: Option<String>,
    exit_code: i32,
    judgement: Judgement,
    outcome: Option<Outcome>,
    notes: Vec<String>,
    argv: Vec<String>,
    wall_ms: u64,
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation on a file failed.
    #[error("cannot {what} {}: {cause}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// A stored file is not what it should be.
    #[error("the stored file {} is damaged: {what}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What about it.
        what: String,
    },
    /// Another daemon has it.
    #[error("another capgated uses the store {}", path.display())]
    Taken {
        /// Which.
        path: PathBuf,
    },
    /// Somebody else could change or read it.
    #[error("the store {} belongs to uid {uid}, not to root", path.display())]
    NotRoots {
        /// Which.
        path: PathBuf,
        /// The owner.
        uid: u32,
    },
    /// There is no such job, or it is somebody else's.
    #[error("there is no sealed job {0}")]
    NoSuchJob(JobId),
}

/// The store of one daemon.
#[derive(Debug)]
pub struct Store {
    /// Where it is, for messages.
    path: PathBuf,
    /// The directory itself: all access goes through it, so that renaming what is above changes nothing.
    handle: OwnedFd,
    /// Held for as long as the daemon runs.
    _lock: Flock<File>,
    /// It goes with the daemon.
    ephemeral: bool,
}

impl Store {
    /// Opens the store at `path`, making it when it is not there. It must belong to root.
    ///
    /// # Errors
    /// When another daemon has it, or it cannot be used.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let error = |what| {
            let path = path.to_owned();
            move |cause| StoreError::Io { what, path, cause }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(error("make"))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())
            .map_err(io::Error::from)
            .map_err(error("open"))?;
        let owner = File::from(handle.try_clone().map_err(error("open"))?)
            .metadata()
            .map_err(error("look at"))?
            .uid();
        if owner != nix::unistd::geteuid().as_raw() {
            return Err(StoreError::NotRoots {
                path: path.to_owned(),
                uid: owner,
            });
        }
        let inside = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(inside.join("lock"))
            .map_err(error("lock"))?;
        let lock =
            Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(
                |(_, errno)| match errno {
                    nix::errno::Errno::EWOULDBLOCK => StoreError::Taken {
                        path: path.to_owned(),
                    },
                    errno => error("lock")(errno.into()),
                },
            )?;
        let store = Self {
            path: path.to_owned(),
            handle,
            _lock: lock,
            ephemeral: false,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(store.jobs())
            .map_err(error("make jobs/ in"))?;
        Ok(store)
    }

    /// A store for one job, made at `path`, where nothing may be; the directory above may be anybody's.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn ephemeral(path: &Path) -> Result<Self, StoreError> {
        let error = |what| {
            let path = path.to_owned();
            move |cause| StoreError::Io { what, path, cause }
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = rustix::fs::open(parent_of(path), flags, Mode::empty())
            .map_err(io::Error::from)
            .map_err(error("open the directory above"))?;
        let name = path
            .file_name()
            .ok_or(io::ErrorKind::InvalidInput.into())
            .map_err(error("make"))?;
        let inside = PathBuf::from(format!("/proc/self/fd/{}", above.as_raw_fd())).join(name);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&inside)
            .map_err(error("make"))?;
        // Through the handle; the owner of the directory above may have put something else there, which then is not root's.
        let mut store = Self::open(&inside)?;
        path.clone_into(&mut store.path);
        store.ephemeral = true;
        Ok(store)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the store's use; one for a single job is removed.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn close(self) -> Result<(), StoreError> {
        if self.ephemeral {
            let error = |what| {
                let path = self.path.clone();
                move |cause| StoreError::Io { what, path, cause }
            };
            fs::remove_dir_all(self.jobs()).map_err(error("empty"))?;
            fs::remove_file(self.inside().join("lock")).map_err(error("empty"))?;
            fs::remove_dir(&self.path).map_err(error("remove"))?;
        }
        Ok(())
    }

    fn inside(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    fn jobs(&self) -> PathBuf {
        self.inside().join("jobs")
    }

    fn directory(&self, id: &JobId) -> PathBuf {
        self.jobs().join(id.as_str())
    }

    /// An error about a file of a job, by its name for people.
    fn error(
        &self,
        what: &'static str,
        id: &JobId,
        name: &str,
    ) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.path.join("jobs").join(id.as_str()).join(name);
        move |cause| StoreError::Io { what, path, cause }
    }

    /// Keeps a job that begins.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&self, id: &JobId, record: &Record) -> Result<(), StoreError> {
        let directory = self.directory(id);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(self.error("make", id, ""))?;
        let written = self
            .part(id, JOB, &to_json(record))
            .and_then(|_| self.commit(id, JOB));
        written.inspect_err(|_| self.forget(id))
    }

    /// Drops a job that did not begin after all.
    pub fn forget(&self, id: &JobId) {
        if let Err(error) = fs::remove_dir_all(self.directory(id)) {
            tracing::warn!(job = %id, %error, "cannot remove the record of a job that did not begin");
        }
    }

    /// Seals a job. When this returns, it is on disk whole; when it fails, the job counts as lost.
    ///
    /// # Errors
    /// When it cannot be written, as on a full disk.
    pub fn seal(&self, id: &JobId, record: &Record, sealed: &Sealed) -> Result<(), StoreError> {
        let closing = Closing {
            contract: sealed.contract.clone(),
            contract_source: sealed.contract_source.clone(),
            exit_code: sealed.exit_code,
            judgement: sealed.judgement.clone(),
            outcome: sealed.outcome,
            notes: sealed.notes.clone(),
            argv: sealed.argv.clone(),
            wall_ms: sealed.wall_ms,
        };
        let files = [
            (LEDGER, sealed.ledger.to_json().into_bytes()),
            (EVIDENCE, sealed.evidence.to_json().into_bytes()),
            (CLOSING, to_json(&closing)),
            (JOB, to_json(record)),
        ];
        let written = files
            .iter()
            .map(|(name, text)| self.part(id, name, text))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|parts| self.flush(id, &parts))
            .and_then(|()| files.iter().try_for_each(|(name, _)| self.commit(id, name)))
            .and_then(|()| {
                File::open(self.directory(id))
                    .and_then(|directory| directory.sync_all())
                    .map_err(self.error("flush", id, ""))
            });
        written.inspect_err(|_| {
            // What is left of it takes the room that is missing. A stale `job.json` says what has to be said.
            for (name, _) in &files {
                let _absent = fs::remove_file(self.directory(id).join(format!("{name}{PART}")));
            }
        })
    }

    /// Marks a job as lost, in the list too.
    ///
    /// # Errors
    /// When it cannot be written; it counts as lost all the same.
    pub fn lose(&self, id: &JobId, record: &Record) -> Result<(), StoreError> {
        let mut record = record.clone();
        LOST.clone_into(&mut record.info.state);
        self.part(id, JOB, &to_json(&record))?;
        self.commit(id, JOB)
    }

    /// Writes a file under its provisional name.
    fn part(&self, id: &JobId, name: &'static str, text: &[u8]) -> Result<File, StoreError> {
        let path = self.directory(id).join(format!("{name}{PART}"));
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| file.write_all(text).map(|()| file))
            .map_err(self.error("write", id, name))
    }

    /// Waits until files are on disk: all at once, since the file system's journal then writes them together.
    fn flush(&self, id: &JobId, files: &[File]) -> Result<(), StoreError> {
        std::thread::scope(|scope| {
            let flushes: Vec<_> = files
                .iter()
                .map(|file| scope.spawn(|| file.sync_all()))
                .collect();
            flushes.into_iter().try_for_each(|flush| {
                flush
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("the flushing thread ended")))
            })
        })
        .map_err(self.error("flush", id, ""))
    }

    /// Gives a whole file its name.
    fn commit(&self, id: &JobId, name: &'static str) -> Result<(), StoreError> {
        let directory = self.directory(id);
        fs::rename(
            directory.join(format!("{name}{PART}")),
            directory.join(name),
        )
        .map_err(self.error("write", id, name))
    }

    /// The ids of all kept jobs, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn ids(&self) -> Result<Vec<JobId>, StoreError> {
        let path = self.path.join("jobs");
        let error = |cause| StoreError::Io {
            what: "list",
            path: path.clone(),
            cause,
        };
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.jobs()).map_err(error)? {
            let name = entry.map_err(error)?.file_name();
            ids.extend(name.to_str().and_then(JobId::parse));
        }
        ids.sort();
        Ok(ids)
    }

    /// What is kept of a job for lists.
    ///
    /// # Errors
    /// When there is no such job, or its record is damaged.
    pub fn record(&self, id: &JobId) -> Result<Record, StoreError> {
        self.read(id, JOB, |bytes| serde_json::from_slice(bytes))
    }

    /// A sealed job.
    ///
    /// # Errors
    /// When there is no such job, it was not sealed, or it is damaged.
    pub fn sealed(&self, id: &JobId) -> Result<Sealed, StoreError> {
        let closing: Closing = self.read(id, CLOSING, |bytes| serde_json::from_slice(bytes))?;
        Ok(Sealed {
            job: id.to_string(),
            ledger: self.read(id, LEDGER, Ledger::from_json)?,
            evidence: self.read(id, EVIDENCE, Evidence::from_json)?,
            contract: closing.contract,
            contract_source: closing.contract_source,
            exit_code: closing.exit_code,
            judgement: closing.judgement,
            outcome: closing.outcome,
            notes: closing.notes,
            argv: closing.argv,
            wall_ms: closing.wall_ms,
        })
    }

    fn read<T, E: std::fmt::Display>(
        &self,
        id: &JobId,
        name: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        let bytes = match fs::read(self.directory(id).join(name)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NoSuchJob(id.clone()));
            }
            Err(error) => return Err(self.error("read", id, name)(error)),
        };
        parse(&bytes).map_err(|what| StoreError::Damaged {
            path: self.path.join("jobs").join(id.as_str()).join(name),
            what: what.to_string(),
        })
    }

    /// Removes what need not be kept any longer. `runs` tells which jobs are not over.
    ///
    /// # Errors
    /// When the store cannot be listed or a job not removed.
    pub fn prune(&self, keep: &Retention, runs: impl Fn(&JobId) -> bool) -> Result<(), StoreError> {
        let oldest = match keep.days {
            0 => 0,
            days => id::unix_seconds().saturating_sub(days.saturating_mul(24 * 3600)),
        };
        let most_bytes = keep.mib_per_uid.saturating_mul(1 << 20);
        let mut kept: std::collections::HashMap<u32, (usize, u64)> = Default::default();
        for id in self.ids()?.into_iter().rev() {
            if runs(&id) {
                continue;
            }
            // A record that cannot be read is nobody's, and goes with root's.
            let uid = self.record(&id).map_or(0, |record| record.info.uid);
            let (jobs, bytes) = kept.entry(uid).or_default();
            *jobs += 1;
            *bytes = bytes.saturating_add(self.bytes_of(&id));
            if *jobs > keep.jobs_per_uid || *bytes > most_bytes || id.started() < oldest {
                fs::remove_dir_all(self.directory(&id)).map_err(self.error("remove", &id, ""))?;
            }
        }
        Ok(())
    }

    /// About what a job takes on disk.
    fn bytes_of(&self, id: &JobId) -> u64 {
        [JOB, LEDGER, EVIDENCE, CLOSING]
            .iter()
            .filter_map(|name| fs::symlink_metadata(self.directory(id).join(name)).ok())
            .map(|meta| meta.len())
            .sum()
    }
}

/// JSON of plain data, with a newline at its end.
fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    // Only maps with keys that are no strings and failing `Serialize` impls are errors, and there are none.
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use capgate_common::{
        compare::{self, Case},
        ledger::{ProbeSet, Recording},
    };

    use super::*;

    fn record(uid: u32, id: &JobId) -> Record {
        Record {
            info: JobInfo {
                job: id.to_string(),
                uid,
                state: "running".to_owned(),
                argv: vec!["true".to_owned()],
                cwd: "/".to_owned(),
                labels: Vec::new(),
                started: id.started(),
                events: 0,
                cpu_sec: 0,
                verdict: Vec::new(),
            },
            home: true,
        }
    }

    fn sealed(id: &JobId) -> Sealed {
        let recording = Recording::empty(ProbeSet::Tracepoint, false);
        let case = Case {
            recording: &recording,
            rules: None,
            outcome: compare::Outcome::Exited(0),
            require_race_free: false,
            ignored: None,
            addresses: None,
        };
        let judgement = compare::judge(&case);
        Sealed {
            job: id.to_string(),
            ledger: compare::seal(&case, &judgement),
            evidence: Evidence::default(),
            contract: None,
            contract_source: None,
            exit_code: judgement.exit_code,
            judgement,
            outcome: Some(Outcome::Exited(0)),
            notes: vec!["a note".to_owned()],
            argv: vec!["true".to_owned()],
            wall_ms: 3,
        }
    }

    #[test]
    fn a_sealed_job_reads_back_and_a_running_one_has_nothing_to_show() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let id = JobId::new()?;
        store.begin(&id, &record(7, &id))?;
        assert!(matches!(store.sealed(&id), Err(StoreError::NoSuchJob(_))));
        let mut done = record(7, &id);
        done.info.state = DONE.to_owned();
        store.seal(&id, &done, &sealed(&id))?;
        assert_eq!(store.record(&id)?.info.state, DONE);
        let back = store.sealed(&id)?;
        assert_eq!(
            serde_json::to_value(&back)?,
            serde_json::to_value(sealed(&id))?
        );
        let names = fs::read_dir(directory.path().join("jobs").join(id.as_str()))?.count();
        assert_eq!(names, 4, "no provisional file is left");
        Ok(())
    }

    #[test]
    fn a_second_daemon_does_not_get_the_store() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let _store = Store::open(directory.path())?;
        assert!(matches!(
            Store::open(directory.path()),
            Err(StoreError::Taken { .. })
        ));
        Ok(())
    }

    #[test]
    fn each_user_keeps_its_newest_jobs_and_running_ones_stay() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let mut ids = Vec::new();
        for uid in [1, 1, 1, 2] {
            let id = JobId::new()?;
            store.begin(&id, &record(uid, &id))?;
            ids.push(id);
        }
        ids[..3].sort();
        let keep = Retention {
            jobs_per_uid: 1,
            mib_per_uid: 1,
            days: 0,
        };
        store.prune(&keep, |id| *id == ids[0])?;
        let mut expect = vec![ids[0].clone(), ids[2].clone(), ids[3].clone()];
        expect.sort();
        assert_eq!(store.ids()?, expect);
        let old = Retention { days: 1, ..keep };
        store.prune(&old, |_| false)?;
        assert_eq!(
            store.ids()?.len(),
            2,
            "the newest of each user is not a day old"
        );
        Ok(())
    }

    #[test]
    fn an_ephemeral_store_leaves_nothing() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("store");
        let store = Store::ephemeral(&path)?;
        assert!(Store::ephemeral(&path).is_err(), "nothing may be there");
        let id = JobId::new()?;
        store.begin(&id, &record(7, &id))?;
        assert_eq!(fs::read_dir(directory.path())?.count(), 1);
        store.close()?;
        assert_eq!(fs::read_dir(directory.path())?.count(), 0);
        Ok(())
    }
}
