//! What events do to the names that they are about: the write set in the making. [`Touch`](crate::touch::Touch) knows what the
//! events of one name mean, [`ending`](crate::ending) what all of them come to.
//!
//! Identity helps where calls have one: a file that was opened and not created, whose inode the job never created, was there.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::{
    ending::{Concluded, Ending},
    event::{File, FileId},
    look::End,
    names::{Full, Kind, NameId, Names, Now, Origin, Presence},
    process::ImageId,
    resolve::{Resolver, Was},
    seen::{Moment, Op},
    touch::Touch,
};

/// No touch.
const NONE: u32 = u32::MAX;

/// What an event may change beside the write set itself.
pub struct Ground {
    /// The names, and what is at them.
    pub names: Names,
    /// What the file system said of them.
    pub resolver: Resolver,
}

/// Everything that was written in one job.
pub struct Writes {
    touches: Vec<Touch>,
    /// For each name its touch, or [`NONE`].
    index: Vec<u32>,
    /// Inodes that the job created, and their order.
    created: HashSet<FileId>,
    created_order: VecDeque<FileId>,
    /// Names at which an inode was opened that the job had not created, as far as was known then.
    uses: HashSet<(NameId, FileId)>,
    /// Names that were truncated, by a call that shows no inode.
    truncated: HashSet<NameId>,
    /// Names at which there was a hard link that the job made, and what it was a link of, when that can be told. Kept when the
    /// link is gone: an open of it may be recorded late.
    links: HashMap<NameId, HashSet<Option<NameId>>>,
    /// A directory, or something that may be one, was renamed that the job did not make.
    moved_directories: bool,
    /// Where directories, and what may be some, were renamed to last.
    moved_to: HashMap<NameId, NameId>,
    /// The same the other way round.
    moved_from: HashMap<NameId, NameId>,
    /// Names of which it is not known what was there before, and others of the same kind: one replaced the other.
    alike: HashMap<NameId, NameId>,
    /// A name that no file can have, where one of two things that change places is meanwhile.
    aside: Option<NameId>,
    /// Earlier names that may have been resolved wrongly, see [`Resolver::changed`].
    doubts: u64,
    /// Most members of the sets above.
    limit: usize,
}

impl Writes {
    /// Nothing written yet. At most `limit` created inodes are remembered: older ones count as not created by the job, which
    /// over-reports.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            touches: Vec::new(),
            index: Vec::new(),
            created: HashSet::new(),
            created_order: VecDeque::new(),
            uses: HashSet::new(),
            truncated: HashSet::new(),
            links: HashMap::new(),
            moved_directories: false,
            moved_to: HashMap::new(),
            moved_from: HashMap::new(),
            alike: HashMap::new(),
            aside: None,
            doubts: 0,
            limit,
        }
    }

    /// What is known about a name, if it was written.
    #[must_use]
    pub fn find(&self, name: NameId) -> Option<&Touch> {
        let slot = *self.index.get(name.index())?;
        self.touches.get(slot as usize)
    }

    /// Every name that was written.
    #[must_use]
    pub fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// Where a directory was renamed to a name from, the last time.
    #[must_use]
    pub fn moved_from(&self, name: NameId) -> Option<NameId> {
        self.moved_from.get(&name).copied()
    }

    /// Images that evidence needs.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.touches.iter().map(|touch| touch.seen.by)
    }

    /// How many names may have been resolved wrongly, as later events showed.
    #[must_use]
    pub fn doubts(&self) -> u64 {
        self.doubts
    }

    fn find_mut(&mut self, name: NameId) -> Option<&mut Touch> {
        let slot = *self.index.get(name.index())?;
        self.touches.get_mut(slot as usize)
    }

    fn touch(&mut self, name: NameId, op: Op, moment: &Moment) -> &mut Touch {
        if self.index.len() <= name.index() {
            self.index.resize(name.index() + 1, NONE);
        }
        let slot = &mut self.index[name.index()];
        if *slot == NONE {
            // There are fewer names than `NONE`, hence fewer touches.
            *slot = u32::try_from(self.touches.len()).unwrap_or(NONE);
            self.touches.push(Touch::new(name, op, moment));
        }
        let touch = &mut self.touches[*slot as usize];
        touch.seen.again(op, moment);
        touch
    }

    /// What is at a name turned out to be of a kind.
    fn reveal(&mut self, names: &mut Names, name: NameId, kind: Kind) {
        if kind == Kind::Unknown {
            return;
        }
        let now = names.now(name);
        let origin = match now.presence {
            Presence::Unknown => Origin::Before(name),
            _ => now.origin,
        };
        if let Origin::Before(first) = origin
            && let Some(touch) = self.find_mut(first)
            && touch.before == Kind::Unknown
        {
            touch.before = kind;
        }
        if now.presence == Presence::Present && now.kind == Kind::Unknown {
            names.set(name, Now { kind, ..now });
        }
    }

    fn doubt(&mut self, on: &mut Ground, name: NameId, was: Was, moment: &Moment) {
        self.doubts += u64::from(on.resolver.changed(name, was, moment.time_ns));
    }

    /// A file was opened for writing, created or truncated.
    ///
    /// # Errors
    /// When there is no room to remember what follows from it.
    pub fn opened(
        &mut self,
        on: &mut Ground,
        name: NameId,
        file: &File,
        op: Op,
        moment: &Moment,
    ) -> Result<(), Full> {
        if file.created {
            self.made(
                on,
                name,
                Now::present(Kind::Other, Origin::Made(name)),
                op,
                moment,
                true,
            );
            self.remember(file.id);
            return Ok(());
        }
        self.arrive(&mut on.names, name, moment)?;
        let now = on.names.now(name);
        let own = self.created.contains(&file.id);
        let touch = self.touch(name, op, moment);
        touch.use_it(now.presence, moment);
        touch.file = true;
        self.reveal(&mut on.names, name, Kind::Other);
        let origin = match now.presence {
            Presence::Present => now.origin,
            _ if own => Origin::Made(name),
            Presence::Unknown => Origin::Before(name),
            Presence::Absent => Origin::Unknown,
        };
        on.names.set(name, Now::present(Kind::Other, origin));
        if own {
            return Ok(());
        }
        if self.uses.len() >= self.limit && !self.uses.contains(&(name, file.id)) {
            return Err(Full);
        }
        self.uses.insert((name, file.id));
        Ok(())
    }

    /// A file without a name was made (`O_TMPFILE`).
    pub fn created_nameless(&mut self, id: FileId) {
        self.remember(id);
    }

    /// Whether the job created an inode.
    #[must_use]
    pub fn is_created(&self, id: FileId) -> bool {
        self.created.contains(&id)
    }

    fn remember(&mut self, id: FileId) {
        if !self.created.insert(id) {
            return;
        }
        self.created_order.push_back(id);
        if self.created_order.len() > self.limit
            && let Some(oldest) = self.created_order.pop_front()
        {
            self.created.remove(&oldest);
        }
    }

    /// A file was cut or extended by its name.
    ///
    /// # Errors
    /// When there is no room for the name that it had before.
    pub fn truncated(
        &mut self,
        on: &mut Ground,
        name: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        self.arrive(&mut on.names, name, moment)?;
        self.truncated.insert(name);
        let now = on.names.now(name);
        let touch = self.touch(name, Op::Truncate, moment);
        touch.use_it(now.presence, moment);
        touch.needed = true;
        touch.file = true;
        self.reveal(&mut on.names, name, Kind::Other);
        if now.presence == Presence::Unknown {
            on.names
                .set(name, Now::present(Kind::Other, Origin::Before(name)));
        }
        Ok(())
    }

    /// A call that fails when something is there put `what` at a name. `identified` says that its inode is remembered.
    pub fn made(
        &mut self,
        on: &mut Ground,
        name: NameId,
        what: Now,
        op: Op,
        moment: &Moment,
        identified: bool,
    ) {
        let now = on.names.now(name);
        let touch = self.touch(name, op, moment);
        touch.make(now.presence, moment);
        touch.anonymous |= !identified;
        touch.file |= what.kind != Kind::Directory;
        on.resolver.forget(name);
        on.names.set(name, what);
        if let Some(moved) = self.overtaken(&mut on.names, name) {
            self.touch(moved, op, moment).settle(moment);
        }
    }

    /// A symbolic link was made, with this text if it is known.
    pub fn symlinked(
        &mut self,
        on: &mut Ground,
        name: NameId,
        text: Option<&[u8]>,
        moment: &Moment,
    ) {
        let link = Now::present(Kind::Link, Origin::Made(name));
        self.made(on, name, link, Op::Symlink, moment, false);
        if let Some(text) = text {
            on.names.set_link(name, text);
        }
    }

    /// `to` was made as another name of the file at `from`, where that has one.
    pub fn linked(&mut self, on: &mut Ground, from: Option<NameId>, to: NameId, moment: &Moment) {
        let source = from.map(|from| on.names.now(from));
        // The record of a renaming, of the link or of its directory, may have overtaken this one.
        let was_there = on.names.now(to).presence == Presence::Present;
        let moved = self.moved_to.get(&to).copied().filter(|_| !was_there);
        let moved = moved.or_else(|| self.overtaken(&mut on.names, to));
        let made = Now::present(Kind::Other, Origin::Made(to));
        let what = match source {
            Some(link) if link.kind == Kind::Link => Now {
                origin: Origin::Made(to),
                ..link
            },
            _ => made,
        };
        self.made(on, to, what, Op::Link, moment, false);
        for link in [to].into_iter().chain(moved) {
            self.links.entry(link).or_default().insert(from);
        }
    }

    /// A name was removed, by [`Op::Unlink`] or [`Op::Rmdir`].
    ///
    /// # Errors
    /// When there is no room for the name that it had before.
    pub fn removed(
        &mut self,
        on: &mut Ground,
        name: NameId,
        op: Op,
        moment: &Moment,
    ) -> Result<(), Full> {
        self.arrive(&mut on.names, name, moment)?;
        let kind = if op == Op::Rmdir {
            Kind::Directory
        } else {
            Kind::Other
        };
        let now = on.names.now(name);
        let touch = self.touch(name, op, moment);
        touch.take(now.presence, moment);
        touch.file |= kind != Kind::Directory;
        self.reveal(&mut on.names, name, kind);
        on.names.set(name, Now::absent());
        self.doubt(on, name, was(kind), moment);
        Ok(())
    }

    /// Names at which an inode was opened that the job never created, as is known at the end only.
    fn foreign_uses(&self) -> impl Iterator<Item = NameId> {
        let foreign = self
            .uses
            .iter()
            .filter(|(_, id)| !self.created.contains(id));
        foreign.map(|&(name, _)| name)
    }

    /// A file that the job did not make and that was written through a hard link which the job made is written at its other name
    /// as well. To be called when all events are in. The answer is for how many such links the other name is not known.
    #[must_use]
    pub fn follow_links(&mut self) -> u64 {
        let mut names: Vec<NameId> = self.foreign_uses().collect();
        names.extend(self.truncated.drain());
        let mut unknown = 0;
        // A link can be one of a link. Each name is done once, so that a circle ends.
        while let Some(name) = names.pop() {
            let sources = self.links.remove(&name).unwrap_or_default();
            let moment = self.find(name).map(Touch::last);
            for source in sources {
                match source.zip(moment) {
                    Some((source, moment)) => {
                        self.touch(source, Op::Open, &moment).needed = true;
                        names.push(source);
                    }
                    None => unknown += 1,
                }
            }
        }
        unknown
    }

    /// Forgets what was put aside while two names changed places. No event comes after this.
    pub fn put_nothing_aside(&mut self, names: &Names) {
        let Some(aside) = self.aside.take() else {
            return;
        };
        self.touches.retain(|touch| {
            touch.name != aside && !names.ancestors(touch.name).any(|above| above == aside)
        });
        self.index.fill(NONE);
        for (slot, touch) in (0..).zip(&self.touches) {
            self.index[touch.name.index()] = slot;
        }
    }

    /// Every name that was written, grouped by directory: what [`Writes::conclude`] must know the end of.
    #[must_use]
    pub fn by_directory(&self, names: &Names) -> Vec<(NameId, Vec<NameId>)> {
        let mut groups: HashMap<NameId, Vec<NameId>> = HashMap::new();
        for touch in &self.touches {
            groups
                .entry(names.parent(touch.name))
                .or_default()
                .push(touch.name);
        }
        groups.into_iter().collect()
    }

    /// Says what each name is. `ends` holds what is there now, for every name of [`Writes::by_directory`]; a name whose end
    /// cannot be told counts as there.
    #[must_use]
    pub fn conclude(mut self, names: &Names, ends: &HashMap<NameId, End>) -> Concluded {
        self.learn_kinds(names, ends);
        let foreign: HashSet<NameId> = self.foreign_uses().collect();
        Ending::new(&self, names, ends, &foreign).conclude()
    }

    /// What something was before the job shows at the end, wherever it is now.
    fn learn_kinds(&mut self, names: &Names, ends: &HashMap<NameId, End>) {
        for slot in 0..self.touches.len() {
            let name = self.touches[slot].name;
            let kind = match ends.get(&name) {
                Some(End::Directory) => Kind::Directory,
                Some(End::Other) => Kind::Other,
                _ => continue,
            };
            let now = names.now(name);
            if now.presence == Presence::Present
                && let Origin::Before(first) = now.origin
                && let Some(touch) = self.find_mut(first)
                && touch.before == Kind::Unknown
            {
                touch.before = kind;
            }
        }
        let alike: Vec<(NameId, NameId)> = self.alike.drain().collect();
        for (first, second) in alike {
            let kind = self
                .find(second)
                .map_or(Kind::Unknown, |touch| touch.before);
            if let Some(touch) = self.find_mut(first)
                && touch.before == Kind::Unknown
            {
                touch.before = kind;
            }
        }
    }
}

fn was(kind: Kind) -> Was {
    match kind {
        Kind::Directory => Was::Directory,
        Kind::Link | Kind::Other => Was::File,
        Kind::Unknown => Was::Unknown,
    }
}

#[cfg(test)]
mod model;
mod renames;
#[cfg(test)]
mod tests;
