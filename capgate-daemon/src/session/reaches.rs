//! What the job reached for of what its contract refuses: attempts count, whatever came of them, and nothing that the contract allows
//! or leaves out of a column takes them back.

use std::{collections::BTreeMap, fs::File, sync::Arc};

use capgate_common::{pathform::escape, refuse};
use hashbrown::HashSet;

use super::{Scene, Session};
use crate::{
    columns,
    event::{Exec, KernelPath, Name, NameOp, Named, Top},
    loss,
    names::NameId,
    process::{ImageId, Program, Ran},
    refused::{self, Original, Refused},
    resolve::Unresolved,
    seen::{Moment, Op, Ops, Seen},
};

/// Most reaches that are told apart.
const MOST: usize = 10_000;

/// The reaches of one job.
#[derive(Default)]
pub(super) struct Reaches {
    /// Nothing is looked for without.
    refused: Option<Arc<Refused>>,
    seen: BTreeMap<String, Seen>,
    /// Names that may be written, so that they are asked for once.
    innocent: HashSet<NameId>,
}

impl Reaches {
    pub(super) fn of(refused: Option<Refused>) -> Self {
        Self {
            refused: refused.map(Arc::new),
            ..Self::default()
        }
    }

    /// Images that evidence needs.
    pub(super) fn images(&self) -> impl Iterator<Item = ImageId> {
        self.seen.values().map(|seen| seen.by)
    }

    /// All of them; `None` when nothing was refused.
    pub(super) fn conclude(self) -> Option<(Arc<Refused>, BTreeMap<String, Seen>)> {
        Some((self.refused?, self.seen))
    }
}

impl Session {
    fn refused(&self) -> Option<Arc<Refused>> {
        self.reaches.refused.clone()
    }

    fn reach(&mut self, entry: String, ops: &[Op], moment: &Moment) {
        let mut seen = Seen::first(ops.first().copied().unwrap_or(Op::Exec), moment);
        for &op in ops {
            seen.ops.add(Ops::one(op));
        }
        if let Some(known) = self.reaches.seen.get_mut(&entry) {
            known.merge(&seen);
        } else if self.reaches.seen.len() < MOST {
            self.reaches.seen.insert(entry, seen);
        } else {
            self.lose(loss::MEMORY);
        }
    }

    /// A name is written, or was to be.
    pub(super) fn reach_write(&mut self, name: NameId, ops: &[Op], moment: &Moment) {
        let Some(refused) = self.refused().filter(|it| it.refusals.has_writes()) else {
            return;
        };
        if self.reaches.innocent.contains(&name) {
            return;
        }
        match self.form(name) {
            Some(form) if refused.refusals.write(&form.entry) => {
                self.reach(format!("{}{}", refuse::WRITE, form.entry), ops, moment);
            }
            _ => {
                self.reaches.innocent.insert(name);
            }
        }
    }

    /// A name is put elsewhere, with all that may be below it.
    pub(super) fn reach_displaced(&mut self, name: NameId, ops: &[Op], moment: &Moment) {
        if let Some(refused) = self.refused()
            && let Some(form) = self.form(name)
            && refused.refusals.displace(&form.entry)
        {
            self.reach(format!("{}{}", refuse::WRITE, form.entry), ops, moment);
        }
    }

    /// The kernel is asked for a change of names, or has refused one, or an open, or an exec.
    pub(super) fn reach_attempt(&mut self, scene: Scene<'_>, name: &Name, refused_too: bool) {
        let Some(refused) = self.refused() else {
            return;
        };
        let refusal = if refused_too { &[Op::Refused][..] } else { &[] };
        let ops = [&[Op::from(name.op)], refusal].concat();
        if name.op == NameOp::Exec {
            let entries = [
                self.try_resolve(scene, &name.first, true).ok(),
                self.called(scene, &name.first),
            ];
            let entries = entries.into_iter().flatten().filter_map(|it| self.form(it));
            let mut entries: Vec<String> = entries.map(|form| form.entry).collect();
            entries.push(leaf_of(&name.first));
            if let Some(entry) = entries.into_iter().find(|it| refused.refusals.program(it)) {
                self.reach(format!("{}{entry}", refuse::EXEC), &ops, &scene.moment);
            }
            return;
        }
        if !refused.refusals.has_writes() {
            return;
        }
        let changes = match name.op {
            NameOp::Chmod | NameOp::Chown | NameOp::Xattr => return,
            NameOp::Symlink | NameOp::Link => vec![&name.second],
            NameOp::Rename => vec![&name.first, &name.second],
            _ => vec![&name.first],
        };
        for named in changes {
            let follow = matches!(name.op, NameOp::Open | NameOp::Truncate);
            let found = match self.try_resolve(scene, named, follow) {
                // Where nothing is, there is no link to follow.
                Err(Unresolved::Look) if follow => self.try_resolve(scene, named, false),
                found => found,
            };
            match found {
                Ok(found) if name.op == NameOp::Rename => {
                    self.reach_displaced(found, &ops, &scene.moment)
                }
                Ok(found) => self.reach_write(found, &ops, &scene.moment),
                // An attempt that goes on is resolved again when it has succeeded.
                Err(why) if refused_too => self.unresolved(scene, why),
                Err(_) => {}
            }
        }
    }

    /// The name that a call executed, as it called it.
    fn called(&mut self, scene: Scene<'_>, named: &Named) -> Option<NameId> {
        self.try_resolve(scene, named, false).ok()
    }

    /// Programs began to run by one exec, an interpreter and its scripts. Whether the exec was of a program that refuses, which is
    /// the client's and not the job's.
    pub(super) fn reach_exec(&mut self, scene: Scene<'_>, exec: &Exec, ran: &[Ran]) -> bool {
        let Some(refused) = self.refused().filter(|it| it.refusals.has_programs()) else {
            return false;
        };
        let op = if ran.len() > 1 { Op::Script } else { Op::Exec };
        let paths: Vec<Option<Vec<u8>>> = ran.iter().map(|ran| self.path_of(ran)).collect();
        if let Some(name) = paths.iter().flatten().find_map(|path| refused.shim(path)) {
            let name = escape(name);
            self.reach(format!("{}{name}", refuse::EXEC), &[op], &scene.moment);
            return true;
        }
        // What was called comes last, so that the entry is of the file that it led to where both are refused.
        let entries = ran
            .iter()
            .rev()
            .filter_map(|ran| columns::program(&ran.program, &self.ground.names, &self.forms));
        let mut entries: Vec<String> = entries.collect();
        let called = self.called(scene, &exec.name);
        entries.extend(
            called
                .and_then(|name| self.form(name))
                .map(|form| form.entry),
        );
        entries.push(leaf_of(&exec.name));
        let mut found = entries
            .into_iter()
            .find(|entry| refused.refusals.program(entry));
        for (ran, path) in ran.iter().zip(&paths) {
            found = found.or_else(|| self.original_of(&refused, scene, ran, path.as_deref()));
        }
        if let (None, [Some(interpreter)]) = (&found, &paths[..]) {
            found = self.argument(&refused, scene, exec, interpreter);
        }
        if let Some(entry) = found {
            self.reach(format!("{}{entry}", refuse::EXEC), &[op], &scene.moment);
        }
        false
    }

    fn path_of(&self, ran: &Ran) -> Option<Vec<u8>> {
        match ran.program {
            Program::File(name) => Some(self.ground.names.bytes(name)),
            Program::Memfd(_) | Program::Unknown => None,
        }
    }

    /// The entry of the refused program that runs under another name: the same file, or one with the same content.
    fn original_of(
        &mut self,
        refused: &Refused,
        scene: Scene<'_>,
        ran: &Ran,
        path: Option<&[u8]>,
    ) -> Option<String> {
        let originals = &refused.originals;
        let Some((id, size)) = ran.file else {
            // A script whose record does not say which file it is: what is at its path now.
            return match self.look.file(path?) {
                Some(file) => original_in(originals, &file),
                None => {
                    // It has come and gone, and may have been a copy.
                    if originals.iter().any(|original| original.is_script) {
                        self.lose(loss::UNRESOLVED);
                    }
                    None
                }
            };
        };
        if let Some(original) = originals.iter().find(|original| original.id == id) {
            return Some(original.entry.clone());
        }
        if !originals.iter().any(|original| original.size == size) {
            return None;
        }
        // By the process, which may have ended, or by its path, at which there may be another file now.
        let same = |file: &File| refused::identity(file).is_some_and(|(found, _)| found == id);
        let by_process = (!ran.is_script).then(|| self.look.program(scene.task.tgid));
        let file = by_process.flatten().filter(same);
        match file.or_else(|| self.look.file(path?).filter(same)) {
            Some(file) => original_in(originals, &file),
            None => {
                // It has the size of what is refused, and is gone.
                self.lose(loss::UNRESOLVED);
                None
            }
        }
    }

    /// The entry of the refused program that an interpreter runs because an argument names it: the first argument that is a file.
    fn argument(
        &mut self,
        refused: &Refused,
        scene: Scene<'_>,
        exec: &Exec,
        interpreter: &[u8],
    ) -> Option<String> {
        for argument in refused::scripts(interpreter, &exec.argv) {
            let base = if argument.starts_with(b"/") {
                KernelPath {
                    bytes: b"/".to_vec(),
                    top: Top::Namespace,
                    ..KernelPath::default()
                }
            } else {
                exec.cwd.as_ref().unwrap_or(&exec.name.base).clone()
            };
            let named = Named {
                base,
                string: argument.to_vec(),
                broken: false,
            };
            let Ok(found) = self.try_resolve(scene, &named, true) else {
                continue;
            };
            let Some(file) = self.look.file(&self.ground.names.bytes(found)) else {
                continue;
            };
            let names = [Some(found), self.called(scene, &named)];
            let forms = names.into_iter().flatten().filter_map(|it| self.form(it));
            return forms
                .map(|form| form.entry)
                .find(|entry| refused.refusals.program(entry))
                .or_else(|| original_in(&refused.originals, &file));
        }
        None
    }
}

/// The entry of the refused program that a file is, or is a copy of. One that cannot be read is taken for one.
fn original_in(originals: &[Original], file: &File) -> Option<String> {
    let (id, size) = refused::identity(file)?;
    let is = |original: &&Original| {
        original.id == id || original.size == size && original.is_copied_in(file).unwrap_or(true)
    };
    Some(originals.iter().find(is)?.entry.clone())
}

/// The file name in a call, as an entry would have it.
fn leaf_of(named: &Named) -> String {
    escape(refused::leaf(&named.string))
}

#[cfg(test)]
mod tests;
