//! Renames: what moves along with a name, and what was there.

use super::{Ground, Writes, was};
use crate::{
    names::{Full, Kind, NameId, Names, Now, Origin, Presence},
    seen::{Moment, Op},
    touch::Found,
};

/// `RENAME_` flags (include/uapi/linux/fs.h).
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Writes {
    /// A name was renamed; `flags` are those of the call.
    ///
    /// # Errors
    /// When there is no room for the names that moved along.
    pub fn renamed(
        &mut self,
        on: &mut Ground,
        from: NameId,
        to: NameId,
        flags: u32,
        moment: &Moment,
    ) -> Result<(), Full> {
        if from == to {
            // The kernel does nothing.
            self.touch(from, Op::Rename, moment).settle(moment);
            return Ok(());
        }
        let below = |names: &Names, name, above| names.ancestors(name).any(|step| step == above);
        if below(&on.names, to, from) || below(&on.names, from, to) {
            // The kernel refuses it, so one of the names was not resolved as the kernel did: a link was looked at too late.
            self.doubts += 1;
            self.touch(from, Op::Rename, moment).settle(moment);
            self.touch(to, Op::Rename, moment).settle(moment);
            return Ok(());
        }
        if flags & RENAME_EXCHANGE != 0 {
            return self.exchanged(on, from, to, moment);
        }
        self.arrive(&mut on.names, from, moment)?;
        let kind = kind_at(on, from);
        self.doubt(on, to, was(kind), moment);
        on.resolver.moved(from, to);
        self.doubt(on, from, was(kind), moment);

        let moved = self.take_away(&mut on.names, from, kind, moment);
        self.put(
            &mut on.names,
            to,
            moved,
            flags & RENAME_NOREPLACE != 0,
            moment,
        );
        if let Some(moved) = self.overtaken(&mut on.names, to) {
            self.touch(moved, Op::Rename, moment).settle(moment);
        }
        if matches!(moved.kind, Kind::Directory | Kind::Unknown) {
            self.moved_to.insert(from, to);
            self.moved_from.insert(to, from);
        }
        self.follow(from, to);
        if flags & RENAME_WHITEOUT != 0 {
            // The kernel leaves a device there that hides the name of a lower layer.
            let device = Now::present(Kind::Other, Origin::Made(from));
            self.made(on, from, device, Op::Mknod, moment, false);
        }
        self.carry(on, from, to, moment)
    }

    /// Takes what is at a name away, and says what it is.
    fn take_away(&mut self, names: &mut Names, from: NameId, kind: Kind, moment: &Moment) -> Now {
        let now = names.now(from);
        let touch = self.touch(from, Op::Rename, moment);
        touch.take(now.presence, moment);
        touch.file |= kind != Kind::Directory;
        self.reveal(names, from, kind);
        names.set(from, Now::absent());
        match now.presence {
            Presence::Present => Now { kind, ..now },
            Presence::Unknown => Now::present(kind, Origin::Before(from)),
            Presence::Absent => Now::present(kind, Origin::Unknown),
        }
    }

    /// Puts something at a name by a rename.
    fn put(&mut self, names: &mut Names, to: NameId, moved: Now, is_free: bool, moment: &Moment) {
        let now = names.now(to);
        if now.presence != Presence::Absent {
            self.replaced(names, to, moved);
        }
        let touch = self.touch(to, Op::Rename, moment);
        touch.file |= moved.kind != Kind::Directory;
        match now.presence {
            _ if is_free => {
                touch.make(now.presence, moment);
                touch.anonymous = true;
            }
            Presence::Present => {
                touch.needed |= now.origin == Origin::Before(to);
                touch.put_over(Found::Something, moment);
            }
            Presence::Absent => touch.put_over(Found::Nothing, moment),
            Presence::Unknown => touch.put_over(Found::Unknown, moment),
        }
        names.set(to, moved);
        self.moved_directories |= matches!(moved.kind, Kind::Directory | Kind::Unknown)
            && !matches!(moved.origin, Origin::Made(_));
    }

    /// Where a name went that was made in a directory which is not there any more: the record of the directory's renaming overtook
    /// the one of the making. Then the end may show the name where the directory went.
    pub(super) fn overtaken(&mut self, names: &mut Names, name: NameId) -> Option<NameId> {
        let directory = names.parent(name);
        if names.now(directory).presence != Presence::Absent {
            return None;
        }
        let component = names.component(name).to_vec();
        let moved = names.child(*self.moved_to.get(&directory)?, &component);
        self.doubts += u64::from(moved.is_err());
        moved.ok()
    }

    /// Something was put over a name: a directory can only replace a directory, and nothing else can.
    fn replaced(&mut self, names: &mut Names, to: NameId, moved: Now) {
        let kind = match moved.kind {
            Kind::Link => Kind::Other,
            kind => kind,
        };
        self.reveal(names, to, kind);
        let now = names.now(to);
        let first = match (now.presence, now.origin) {
            (Presence::Unknown, _) => to,
            (_, Origin::Before(first)) => first,
            _ => return,
        };
        if let (Kind::Unknown, Origin::Before(second)) = (kind, moved.origin) {
            self.alike.entry(first).or_insert(second);
        }
    }

    /// A hard link stays one under its new name.
    fn follow(&mut self, from: NameId, to: NameId) {
        if let Some(sources) = self.links.get(&from).cloned() {
            self.links.entry(to).or_default().extend(sources);
        }
    }

    /// What was in a directory before the job came along when the directory was renamed. On the first sight of such a name it is
    /// made up for: taken away from its old name, made at the new one.
    pub(super) fn arrive(
        &mut self,
        names: &mut Names,
        name: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        let now = names.now(name);
        let known = now.presence == Presence::Present && self.find(name).is_some();
        if !self.moved_directories || known {
            return Ok(());
        }
        let upwards: Vec<NameId> = std::iter::once(name).chain(names.ancestors(name)).collect();
        let moved = upwards
            .iter()
            .find_map(|&above| match names.now(above).origin {
                // Nothing in it is from before.
                Origin::Made(_) => Some(None),
                Origin::Before(old) if old != above => Some(Some((above, old))),
                _ => None,
            });
        let Some((above, mut first)) = moved.flatten() else {
            return Ok(());
        };
        let below = upwards.iter().take_while(|&&step| step != above).count();
        for &step in upwards[..below].iter().rev() {
            let component = names.component(step).to_vec();
            first = names.child(first, &component)?;
        }
        self.take_away(names, first, now.kind, moment);
        let touch = self.touch(name, Op::Rename, moment);
        touch.make(Presence::Unknown, moment);
        touch.anonymous = true;
        names.set(name, Now::present(now.kind, Origin::Before(first)));
        Ok(())
    }

    /// The names known below a directory go where it goes.
    fn carry(
        &mut self,
        on: &mut Ground,
        from: NameId,
        to: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        let mut stack = vec![(from, to)];
        while let Some((from, to)) = stack.pop() {
            let children: Vec<NameId> = on.names.children(from).collect();
            for child in children {
                let component = on.names.component(child).to_vec();
                let target = on.names.child(to, &component)?;
                let now = on.names.now(child);
                on.resolver.moved(child, target);
                // A link that was looked at only when it had another place or was another one.
                self.doubts += u64::from(on.resolver.was_late(child, moment.time_ns));
                on.resolver.forget(child);
                let touch = self.find(child);
                match now.presence {
                    Presence::Present
                        if touch.is_some() || matches!(now.origin, Origin::Made(_)) =>
                    {
                        let moved = self.take_away(&mut on.names, child, now.kind, moment);
                        self.made(on, target, moved, Op::Rename, moment, false);
                        self.follow(child, target);
                    }
                    Presence::Present => {
                        on.names.set(child, Now::default());
                        on.names.set(target, now);
                    }
                    Presence::Absent if touch.is_some_and(|touch| !touch.is_before(moment)) => {
                        // It may have been there yet: then the end will show it.
                        self.touch(target, Op::Rename, moment);
                    }
                    _ => {}
                }
                stack.push((child, target));
            }
        }
        Ok(())
    }

    /// Two names changed places: three renames, the first one to where nothing can be.
    fn exchanged(
        &mut self,
        on: &mut Ground,
        one: NameId,
        other: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        // A name that has a NUL in it is nobody's.
        let aside = on.names.child(NameId::ROOT, b"\0aside")?;
        self.aside = Some(aside);
        self.renamed(on, one, aside, RENAME_NOREPLACE, moment)?;
        self.renamed(on, other, one, RENAME_NOREPLACE, moment)?;
        self.renamed(on, aside, other, RENAME_NOREPLACE, moment)
    }
}

/// What is at a name, by the events or by an earlier look.
fn kind_at(on: &Ground, name: NameId) -> Kind {
    let now = on.names.now(name);
    if now.presence == Presence::Present && now.kind != Kind::Unknown {
        return now.kind;
    }
    on.resolver.kind(name)
}
