//! Facts about files and names.

use capgate_common::escapes;

use super::{ContractFile, Scene, Session, may_cross};
use crate::{
    event::{File, Name, NameOp, Named},
    names::{Kind, Now, Origin},
    normalise,
    seen::{Op, Seen},
    told::What,
};

/// `AT_` flags (include/uapi/linux/fcntl.h).
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_SYMLINK_FOLLOW: u32 = 0x400;

impl Session {
    /// A file came into the job's hands.
    pub(super) fn file(&mut self, scene: Scene<'_>, file: &File) -> (Op, What) {
        let op = match file {
            File { received: true, .. } => Op::Receive,
            File { created: true, .. } => Op::Create,
            File { truncate: true, .. } => Op::Truncate,
            _ => Op::Open,
        };
        if normalise::holds_nothing(file) {
            return (op, What::Nothing);
        }
        if normalise::is_nameless(file) {
            if file.created {
                self.writes.created_nameless(file.id);
            }
            return (op, What::Nothing);
        }
        // Reached by a descriptor after its name was removed.
        if file.path.unhashed && !file.created && self.writes.is_created(file.id) {
            return (op, What::Nothing);
        }
        if let Some(ContractFile {
            identity: Some((dev, ino)),
            ..
        }) = self.contract
            && (file.id.dev, file.id.ino) == (dev, ino)
            && !file.created
        {
            self.escape(escapes::CONTRACT_WRITTEN, op, &scene.moment);
        }
        let Some(name) = self.kernel_path(scene, &file.path) else {
            return (op, What::Nothing);
        };
        self.reach_write(name, &[op], &scene.moment);
        let result = self
            .writes
            .opened(&mut self.ground, name, file, op, &scene.moment);
        self.fit(result);
        (op, What::Name(name))
    }

    /// A change of names happened.
    pub(super) fn name(&mut self, scene: Scene<'_>, name: &Name) -> (Op, What) {
        let first = &name.first;
        let op = Op::from(name.op);
        let what = match name.op {
            NameOp::Rename => self.rename(scene, name),
            NameOp::Link => self.link(scene, name),
            NameOp::Symlink => self.symlink(scene, name),
            NameOp::Truncate => self.truncate(scene, first),
            NameOp::Bind => self.bind(scene, first),
            NameOp::Unlink | NameOp::Rmdir => self.remove(scene, first, op),
            NameOp::Mkdir => self.make(scene, first, Kind::Directory, op),
            NameOp::Mknod => self.make(scene, first, Kind::Other, op),
            NameOp::Chmod => self.change(scene, first, true, op),
            NameOp::Chown | NameOp::Xattr => {
                self.change(scene, first, name.arg & AT_SYMLINK_NOFOLLOW == 0, op)
            }
            // Told of only when they are refused.
            NameOp::Open | NameOp::Exec => What::Nothing,
        };
        (op, what)
    }

    fn rename(&mut self, scene: Scene<'_>, name: &Name) -> What {
        let from = self.resolve(scene, &name.first, false);
        let to = self.resolve(scene, &name.second, false);
        let Some((from, to)) = from.zip(to) else {
            return What::Nothing;
        };
        self.reach_displaced(from, &[Op::Rename], &scene.moment);
        self.reach_displaced(to, &[Op::Rename], &scene.moment);
        let result = self
            .writes
            .renamed(&mut self.ground, from, to, name.arg, &scene.moment);
        self.fit(result);
        self.sockets.renamed(from, to);
        What::Name(to)
    }

    fn link(&mut self, scene: Scene<'_>, name: &Name) -> What {
        let Some(to) = self.resolve(scene, &name.second, false) else {
            return What::Nothing;
        };
        // The source does not count; it matters only when somebody writes through the link.
        let follow = name.arg & AT_SYMLINK_FOLLOW != 0;
        // A file without a name that gets one.
        let nameless = name.first.string.is_empty() && name.first.base.unhashed;
        let crosses = may_cross(&name.first, follow) && self.other_mounts(scene).is_some();
        let from = if nameless || crosses {
            None
        } else {
            self.try_resolve(scene, &name.first, follow).ok()
        };
        self.reach_write(to, &[Op::Link], &scene.moment);
        // Whoever writes through the new name writes to the old one.
        if let Some(from) = from {
            self.reach_write(from, &[Op::Link], &scene.moment);
        }
        self.writes
            .linked(&mut self.ground, from, to, &scene.moment);
        What::Name(to)
    }

    fn symlink(&mut self, scene: Scene<'_>, name: &Name) -> What {
        let Some(link) = self.resolve(scene, &name.second, false) else {
            return What::Nothing;
        };
        let text = (!name.first.broken).then_some(name.first.string.as_slice());
        self.reach_write(link, &[Op::Symlink], &scene.moment);
        self.writes
            .symlinked(&mut self.ground, link, text, &scene.moment);
        What::Name(link)
    }

    fn truncate(&mut self, scene: Scene<'_>, named: &Named) -> What {
        let Some(name) = self.resolve(scene, named, true) else {
            return What::Nothing;
        };
        self.reach_write(name, &[Op::Truncate], &scene.moment);
        let result = self.writes.truncated(&mut self.ground, name, &scene.moment);
        self.fit(result);
        What::Name(name)
    }

    fn make(&mut self, scene: Scene<'_>, named: &Named, kind: Kind, op: Op) -> What {
        let Some(name) = self.resolve(scene, named, false) else {
            return What::Nothing;
        };
        self.reach_write(name, &[op], &scene.moment);
        let what = Now::present(kind, Origin::Made(name));
        self.writes
            .made(&mut self.ground, name, what, op, &scene.moment, false);
        What::Name(name)
    }

    fn remove(&mut self, scene: Scene<'_>, named: &Named, op: Op) -> What {
        let Some(name) = self.resolve(scene, named, false) else {
            return What::Nothing;
        };
        self.reach_write(name, &[op], &scene.moment);
        let result = self
            .writes
            .removed(&mut self.ground, name, op, &scene.moment);
        self.fit(result);
        What::Name(name)
    }

    /// A unix socket was bound: the kernel gives its path as the base, or its abstract name as the string.
    fn bind(&mut self, scene: Scene<'_>, named: &Named) -> What {
        if let Some(name) = named.string.strip_prefix(b"\0") {
            let result = self.sockets.abstract_bound(name);
            self.fit(result);
            return What::Nothing;
        }
        let what = self.make(scene, named, Kind::Other, Op::Bind);
        if let What::Name(name) = what {
            self.sockets.unix_bound(name);
        }
        what
    }

    /// Mode, owner or an attribute changed: evidence only, so a name that cannot be told is no loss.
    fn change(&mut self, scene: Scene<'_>, named: &Named, follow: bool, op: Op) -> What {
        if may_cross(named, follow) && self.other_mounts(scene).is_some() {
            return What::Nothing;
        }
        let Ok(name) = self.try_resolve(scene, named, follow) else {
            return What::Nothing;
        };
        let seen = Seen::first(op, &scene.moment);
        self.metadata
            .entry(name)
            .and_modify(|known| known.merge(&seen))
            .or_insert(seen);
        What::Name(name)
    }
}
