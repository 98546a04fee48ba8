//! What capgate told of a job, compared with what the witnesses saw. Pure: whichever probe set recorded it, and whatever suite it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use capgate_common::{
    evidence::Evidence,
    ledger::Recording,
    pathform::{Form, Forms},
};

use super::{
    story::Story,
    walk::{Changes, Walk},
};

/// What a ledger and its evidence say about names and programs, as entries.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The write set.
    pub written: BTreeSet<String>,
    /// Names that came and went.
    pub transient: BTreeSet<String>,
    /// Programs.
    pub programs: BTreeSet<String>,
}

impl Told {
    /// What was sealed.
    pub fn of(recording: &Recording, evidence: &Evidence) -> Self {
        let transient = evidence.transient.iter();
        Self {
            written: recording.write_paths.clone(),
            transient: transient.map(|item| item.entry.clone()).collect(),
            programs: recording.execs.clone(),
        }
    }
}

/// What the witnesses saw.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// By its system calls.
    pub story: &'a Story,
    /// The names before the job.
    pub before: &'a Walk,
    /// The names after it.
    pub after: &'a Walk,
}

/// Where they disagree: entries, each with the first reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What a witness saw and capgate does not tell, or does not count although it does count.
    pub missed: BTreeMap<String, &'static str>,
    /// What capgate tells and no witness saw, or counts although it does not count.
    pub invented: BTreeMap<String, &'static str>,
}

impl Judgement {
    fn miss(&mut self, entry: &str, reason: &'static str) {
        self.missed.entry(entry.to_owned()).or_insert(reason);
    }

    fn invent(&mut self, entry: &str, reason: &'static str) {
        self.invented.entry(entry.to_owned()).or_insert(reason);
    }
}

/// Compares them.
///
/// # Errors
/// When a witness saw a name that is no path.
pub fn judge(forms: &Forms, seen: Seen<'_>, told: &Told) -> Result<Judgement, String> {
    let names = Names {
        forms,
        story: seen.story,
    };
    let mut judgement = Judgement::default();
    seen_by_strace(&names, seen, told, &mut judgement)?;
    let changes = Changes::between(seen.before, seen.after);
    seen_by_walk(&names, seen, &changes, told, &mut judgement)?;
    told_as_written(&names, seen, &changes, told, &mut judgement)?;
    told_as_transient(&names, seen, told, &mut judgement)?;
    let programs = names.entries(&seen.story.programs)?;
    for program in programs.difference(&told.programs) {
        judgement.miss(program, "was run");
    }
    for program in told.programs.difference(&programs) {
        judgement.invent(program, "was not run, by strace");
    }
    Ok(judgement)
}

/// Paths as entries.
struct Names<'a> {
    forms: &'a Forms,
    story: &'a Story,
}

impl Names<'_> {
    fn form(&self, path: &Path) -> Result<Form, String> {
        let is_own = |pid| self.story.is_process(pid);
        let form = self.forms.form(path.as_os_str().as_bytes(), &is_own);
        form.ok_or_else(|| format!("no path: {}", path.display()))
    }

    fn entries<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Result<BTreeSet<String>, String> {
        let forms = paths.into_iter().map(|path| self.form(path));
        forms.map(|form| Ok(form?.entry)).collect()
    }

    /// The entry that stands for some names of a path's directory.
    fn anything_beside(&self, path: &Path) -> Result<Option<String>, String> {
        let above = path.parent().map(|above| self.form(above)).transpose()?;
        Ok(above.map(|above| above.anything_in()))
    }

    /// Whether a path is no file now, and the write set has the entry that stands for what was in its directory.
    fn is_gone_and_told(&self, path: &Path, seen: Seen<'_>, told: &Told) -> Result<bool, String> {
        let is_told = |some: String| told.written.contains(&some);
        Ok(!seen.after.has_file(path) && self.anything_beside(path)?.is_some_and(is_told))
    }

    /// Whether the write set holds a directory with all below it, of which this is a part.
    fn lies_in_told_directory(&self, path: &Path, told: &Told) -> Result<bool, String> {
        for above in path.ancestors().skip(1) {
            if told.written.contains(&self.form(above)?.directory()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Each name that strace saw is told.
fn seen_by_strace(
    names: &Names<'_>,
    seen: Seen<'_>,
    told: &Told,
    judgement: &mut Judgement,
) -> Result<(), String> {
    for path in seen.story.files.keys() {
        let form = names.form(path)?;
        let is_told = told.written.contains(&form.entry)
            || told.transient.contains(&form.entry)
            || told.written.contains(&form.directory())
            || names.is_gone_and_told(path, seen, told)?;
        if !is_told {
            judgement.miss(&form.entry, "strace saw it");
        }
    }
    Ok(())
}

/// Each name that is not as it was counts.
fn seen_by_walk(
    names: &Names<'_>,
    seen: Seen<'_>,
    changes: &Changes,
    told: &Told,
    judgement: &mut Judgement,
) -> Result<(), String> {
    for path in &changes.files {
        let form = names.form(path)?;
        let counts = told.written.contains(&form.entry)
            || names.lies_in_told_directory(path, told)?
            || names.is_gone_and_told(path, seen, told)?;
        if !counts {
            judgement.miss(&form.entry, "the file system is not as it was");
        }
    }
    for path in &changes.directories {
        let directory = names.form(path)?.directory();
        if !told.written.contains(&directory) && !names.lies_in_told_directory(path, told)? {
            judgement.miss(&directory, "the directory went");
        }
    }
    Ok(())
}

/// Each name of the write set was seen, and was there before or is there now.
fn told_as_written(
    names: &Names<'_>,
    seen: Seen<'_>,
    changes: &Changes,
    told: &Told,
    judgement: &mut Judgement,
) -> Result<(), String> {
    let files: BTreeSet<String> = names.entries(seen.story.files.keys().chain(&changes.files))?;
    let mut directories = BTreeSet::new();
    let mut some = BTreeSet::new();
    let mut came_and_went = BTreeSet::new();
    for path in &seen.story.directories {
        directories.insert(names.form(path)?.directory());
    }
    for path in seen.story.files.keys().chain(&seen.story.directories) {
        if seen.after.names.contains_key(path) {
            continue;
        }
        some.extend(names.anything_beside(path)?);
        if seen.after.covers(path) && !seen.before.names.contains_key(path) {
            let form = names.form(path)?;
            came_and_went.extend([form.directory(), form.entry]);
        }
    }
    for entry in &told.written {
        let was_seen = if entry.ends_with('/') {
            directories.contains(entry)
        } else {
            files.contains(entry) || some.contains(entry)
        };
        if !was_seen {
            judgement.invent(entry, "no witness saw it");
        } else if came_and_went.contains(entry) {
            judgement.invent(entry, "neither was nor is there");
        }
    }
    Ok(())
}

/// Each name that is told to have come and gone was seen, was not there and is not there.
fn told_as_transient(
    names: &Names<'_>,
    seen: Seen<'_>,
    told: &Told,
    judgement: &mut Judgement,
) -> Result<(), String> {
    let files = names.entries(seen.story.files.keys())?;
    for entry in told.transient.difference(&files) {
        judgement.invent(entry, "no witness saw it come and go");
    }
    for (walk, reason) in [
        (seen.before, "told as transient, and was there before"),
        (seen.after, "told as transient, and is there"),
    ] {
        let there = walk.names.keys().filter(|path| walk.has_file(path));
        for entry in told.transient.intersection(&names.entries(there)?) {
            judgement.miss(entry, reason);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
