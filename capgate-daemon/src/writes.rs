//! The write set's rules: what the events say of each name, and what that makes it when the job has ended.
//!
//! For each name three things are counted: how often a call *made* it and found nothing there before (created flag, mkdir, link,
//! …), how often a call *took* it away (unlink, rename from), and how often a plain rename put something over it, which tells
//! nothing of what was there. Together with what the file system says at the end they tell what was there before the job,
//! whatever the order in which records arrived: `before = after + taken - made`, less what the renames may have made.
//! Order is used where it is certain: within one thread, or when the events are far apart.
//!
//! Identity helps where calls have one: a file that was opened and not created, whose inode the job never created, was there.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::{
    event::{File, FileId},
    look::End,
    names::{Full, Kind, NameId, Names, Now, Origin, Presence},
    process::ImageId,
    resolve::{Resolver, Was},
    seen::{Moment, Op, Seen},
};

/// Records of different threads that are further apart than this arrived in the order in which things happened. A record is written at the
/// end of its call; in between a thread can be preempted, or held by a CPU quota, whose period is a tenth of a second.
const ORDER_NS: u64 = 1_000_000_000;

/// `RENAME_` flags (include/uapi/linux/fs.h).
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// No touch.
const NONE: u32 = u32::MAX;

/// What is known about one name that was written.
struct Touch {
    name: NameId,
    /// Calls that made it and found nothing there.
    made: u32,
    /// Calls that took it away.
    taken: u32,
    /// Plain renames over it that may have found something there or not.
    over: u32,
    /// The order of events proves that it was there before the job.
    certain: bool,
    /// A call needed it to be there, and showed no identity.
    needed: bool,
    /// It was made by a call that showed no identity: an unknown inode there proves nothing.
    anonymous: bool,
    /// Something that may not have been a directory was there at some time.
    file: bool,
    /// What was there before the job, if anything.
    before: Kind,
    seen: Seen,
    last_ns: u64,
    last_tid: u32,
}

impl Touch {
    /// Whether an event is certain to have happened after the last one here.
    fn is_before(&self, moment: &Moment) -> bool {
        moment.tid == self.last_tid || moment.time_ns > self.last_ns.saturating_add(ORDER_NS)
    }

    /// A call made the name.
    fn make(&mut self, moment: &Moment) {
        // Taken away first and made later: it was there before the job, unless the records may be in the wrong order.
        if self.made == 0 && self.over == 0 && self.taken > 0 && self.is_before(moment) {
            self.certain = true;
        }
        self.made = self.made.saturating_add(1);
    }

    fn take(&mut self) {
        self.taken = self.taken.saturating_add(1);
    }
}

/// What was at a name before the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Something,
    Unknown,
}

/// What a name is to the write set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It counts as a name that is no directory.
    pub as_file: bool,
    /// It counts as a directory: `d/`.
    pub as_directory: bool,
    /// It is not there, and it is not known whether it was: it counts as `dir/*`.
    pub untold: bool,
    /// It came and went within the job.
    pub transient: bool,
}

/// A name that was written, at the end of the job.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Which.
    pub name: NameId,
    /// What it is to the write set.
    pub outcome: Outcome,
    /// How it came about.
    pub seen: Seen,
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
    /// Hard links that the job made, and what they are links of, when that can be told.
    links: HashMap<NameId, Option<NameId>>,
    /// A directory, or something that may be one, was renamed that the job did not make.
    moved_directories: bool,
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
            links: HashMap::new(),
            moved_directories: false,
            limit,
        }
    }

    /// Whether a name was written, in whatever way.
    #[must_use]
    pub fn is_touched(&self, name: NameId) -> bool {
        self.find(name).is_some()
    }

    /// Whether what was at a name before the job may have been removed, replaced or renamed.
    #[must_use]
    pub fn is_displaced(&self, name: NameId) -> bool {
        self.find(name).is_some_and(|touch| {
            touch.certain || touch.needed || touch.over > 0 || touch.taken > touch.made
        })
    }

    /// When and by whom a name was first written.
    #[must_use]
    pub fn seen(&self, name: NameId) -> Option<Seen> {
        self.find(name).map(|touch| touch.seen)
    }

    /// Images that evidence needs.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.touches.iter().map(|touch| touch.seen.by)
    }

    fn find(&self, name: NameId) -> Option<&Touch> {
        let slot = *self.index.get(name.index())?;
        self.touches.get(slot as usize)
    }

    fn touch(&mut self, name: NameId, op: Op, moment: &Moment) -> &mut Touch {
        if self.index.len() <= name.index() {
            self.index.resize(name.index() + 1, NONE);
        }
        let slot = &mut self.index[name.index()];
        if *slot == NONE {
            // There are fewer names than `NONE`, hence fewer touches.
            *slot = u32::try_from(self.touches.len()).unwrap_or(NONE);
            self.touches.push(Touch {
                name,
                made: 0,
                taken: 0,
                over: 0,
                certain: false,
                needed: false,
                anonymous: false,
                file: false,
                before: Kind::Unknown,
                seen: Seen {
                    count: 0,
                    ..Seen::first(op, moment)
                },
                last_ns: moment.time_ns,
                last_tid: moment.tid,
            });
        }
        let touch = &mut self.touches[*slot as usize];
        touch.seen.again(op, moment);
        touch
    }

    /// The last event at a name is known now.
    fn settle(&mut self, name: NameId, moment: &Moment) {
        if let Some(&slot) = self.index.get(name.index())
            && let Some(touch) = self.touches.get_mut(slot as usize)
        {
            touch.last_ns = touch.last_ns.max(moment.time_ns);
            touch.last_tid = moment.tid;
        }
    }

    /// What is at a name turned out to be of a kind.
    fn reveal(&mut self, names: &mut Names, name: NameId, kind: Kind) {
        let now = names.now(name);
        let origin = match (now.presence, now.origin) {
            (Presence::Unknown, _) => Origin::Before(name),
            (_, origin) => origin,
        };
        if let Origin::Before(first) = origin
            && let Some(&slot) = self.index.get(first.index())
            && let Some(touch) = self.touches.get_mut(slot as usize)
            && touch.before == Kind::Unknown
        {
            touch.before = kind;
        }
        if now.presence == Presence::Present && now.kind == Kind::Unknown {
            names.set(name, Now { kind, ..now });
        }
    }

    /// A file was opened for writing, created or truncated.
    ///
    /// # Errors
    /// When there is no room to remember what follows from it.
    pub fn opened(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        name: NameId,
        file: &File,
        op: Op,
        moment: &Moment,
    ) -> Result<(), Full> {
        if !file.created {
            self.arrive(names, name, moment)?;
        }
        let touch = self.touch(name, op, moment);
        touch.file = true;
        if file.created {
            touch.make(moment);
            self.settle(name, moment);
            resolver.forget(name);
            names.set(name, Now::present(Kind::Other, Origin::Made));
            self.remember(file.id);
            return Ok(());
        }
        let own = self.created.contains(&file.id);
        self.settle(name, moment);
        let now = names.now(name);
        self.reveal(names, name, Kind::Other);
        if now.presence != Presence::Present {
            let origin = match now.presence {
                _ if own => Origin::Made,
                Presence::Unknown => Origin::Before(name),
                _ => Origin::Unknown,
            };
            names.set(name, Now::present(Kind::Other, origin));
        }
        if !own {
            if self.uses.len() >= self.limit && !self.uses.contains(&(name, file.id)) {
                return Err(Full);
            }
            self.uses.insert((name, file.id));
        }
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
        names: &mut Names,
        name: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        self.arrive(names, name, moment)?;
        let touch = self.touch(name, Op::Truncate, moment);
        touch.needed = true;
        touch.file = true;
        self.settle(name, moment);
        self.reveal(names, name, Kind::Other);
        if names.now(name).presence == Presence::Unknown {
            names.set(name, Now::present(Kind::Other, Origin::Before(name)));
        }
        Ok(())
    }

    /// A call that fails when something is there made a name.
    pub fn made(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        name: NameId,
        now: Now,
        op: Op,
        moment: &Moment,
    ) {
        let touch = self.touch(name, op, moment);
        touch.make(moment);
        touch.anonymous = true;
        touch.file |= now.kind != Kind::Directory;
        self.settle(name, moment);
        resolver.forget(name);
        names.set(name, now);
    }

    /// A symbolic link was made.
    pub fn symlinked(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        name: NameId,
        text: &[u8],
        moment: &Moment,
    ) {
        self.made(names, resolver, name, Now::default(), Op::Symlink, moment);
        names.set_link(name, text);
    }

    /// `to` was made as another name of the file at `from`, where that has one.
    pub fn linked(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        from: Option<NameId>,
        to: NameId,
        moment: &Moment,
    ) {
        let mut now = Now::present(Kind::Other, Origin::Made);
        if let Some(from) = from {
            let source = names.now(from);
            if source.kind == Kind::Link {
                now = Now {
                    origin: Origin::Made,
                    ..source
                };
            }
        }
        self.links.insert(to, from);
        self.made(names, resolver, to, now, Op::Link, moment);
    }

    /// A name was removed, by [`Op::Unlink`] or [`Op::Rmdir`]. The answer is how many earlier names may have been resolved wrongly,
    /// see [`Resolver::changed`].
    ///
    /// # Errors
    /// When there is no room for the name that it had before.
    pub fn removed(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        name: NameId,
        op: Op,
        moment: &Moment,
    ) -> Result<u64, Full> {
        self.arrive(names, name, moment)?;
        let (kind, was) = match op {
            Op::Rmdir => (Kind::Directory, Was::Directory),
            _ => (Kind::Other, Was::File),
        };
        let touch = self.touch(name, op, moment);
        touch.take();
        touch.file |= kind != Kind::Directory;
        self.settle(name, moment);
        self.reveal(names, name, kind);
        names.set(name, Now::absent());
        Ok(u64::from(resolver.changed(name, was, moment.time_ns)))
    }

    /// A name was renamed. The answer is how many earlier names may have been resolved wrongly, see [`Resolver::changed`].
    ///
    /// # Errors
    /// When there is no room for the names that moved along.
    pub fn renamed(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        from: NameId,
        to: NameId,
        flags: u32,
        moment: &Moment,
    ) -> Result<u64, Full> {
        let kind = kind_at(names, resolver, from);
        if from == to {
            // The kernel does nothing.
            self.touch(from, Op::Rename, moment);
            self.settle(from, moment);
            return Ok(0);
        }
        self.arrive(names, from, moment)?;
        if flags & RENAME_EXCHANGE != 0 {
            let other = kind_at(names, resolver, to);
            let wrong = u64::from(resolver.changed(from, was(kind), moment.time_ns))
                + u64::from(resolver.changed(to, was(other), moment.time_ns));
            self.exchanged(names, from, to, moment)?;
            return Ok(wrong);
        }
        let mut wrong = u64::from(resolver.changed(to, was(kind), moment.time_ns));
        resolver.moved(from, to);
        wrong += u64::from(resolver.changed(from, was(kind), moment.time_ns));

        let moved = self.take_away(names, from, kind, moment);
        if flags & RENAME_WHITEOUT != 0 {
            // The kernel leaves a device there that hides the name of a lower layer.
            let device = Now::present(Kind::Other, Origin::Made);
            self.made(names, resolver, from, device, Op::Mknod, moment);
        }
        self.put(names, to, moved, flags & RENAME_NOREPLACE != 0, moment);
        self.carry(names, resolver, from, to, moment)?;
        Ok(wrong)
    }

    /// Takes what is at a name away, and says what it is.
    fn take_away(&mut self, names: &mut Names, from: NameId, kind: Kind, moment: &Moment) -> Now {
        let touch = self.touch(from, Op::Rename, moment);
        touch.take();
        touch.file |= kind != Kind::Directory;
        self.settle(from, moment);
        if kind != Kind::Unknown {
            self.reveal(names, from, kind);
        }
        let now = names.now(from);
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
        if moved.kind != Kind::Unknown && now.presence != Presence::Absent {
            // A directory can only replace a directory, and nothing else can.
            let replaced = if moved.kind == Kind::Directory {
                Kind::Directory
            } else {
                Kind::Other
            };
            self.reveal(names, to, replaced);
        }
        let fresh = !self.is_touched(to);
        let touch = self.touch(to, Op::Rename, moment);
        touch.anonymous = true;
        touch.file |= moved.kind != Kind::Directory;
        let ordered = fresh || touch.is_before(moment);
        match now.presence {
            _ if is_free => touch.make(moment),
            Presence::Present if ordered => {
                if now.origin == Origin::Before(to) {
                    touch.needed = true;
                }
            }
            Presence::Absent if ordered => touch.make(moment),
            _ => touch.over = touch.over.saturating_add(1),
        }
        self.settle(to, moment);
        names.set(to, moved);
        self.moved_directories |=
            matches!(moved.kind, Kind::Directory | Kind::Unknown) && moved.origin != Origin::Made;
    }

    /// What was in a directory before the job came along when the directory was renamed. On the first sight of such a name it is
    /// made up for: taken away from its old name, made at the new one.
    fn arrive(&mut self, names: &mut Names, name: NameId, moment: &Moment) -> Result<(), Full> {
        let now = names.now(name);
        let known = now.presence != Presence::Unknown && now.origin != Origin::Before(name);
        if !self.moved_directories || known || self.is_touched(name) {
            return Ok(());
        }
        let moved = names
            .ancestors(name)
            .find_map(|above| match names.now(above).origin {
                // Nothing in it is from before.
                Origin::Made => Some((above, above)),
                Origin::Before(old) if old != above => Some((above, old)),
                _ => None,
            });
        let Some((above, old)) = moved.filter(|(above, old)| above != old) else {
            return Ok(());
        };
        let path: Vec<NameId> = names
            .ancestors(name)
            .take_while(|&between| between != above)
            .collect();
        let mut first = old;
        for &step in path.iter().rev().chain([&name]) {
            let component = names.component(step).to_vec();
            first = names.child(first, &component)?;
        }
        self.take_away(names, first, now.kind, moment);
        let touch = self.touch(name, Op::Rename, moment);
        touch.make(moment);
        touch.anonymous = true;
        self.settle(name, moment);
        names.set(name, Now::present(now.kind, Origin::Before(first)));
        Ok(())
    }

    /// The names known below a directory go where it goes.
    fn carry(
        &mut self,
        names: &mut Names,
        resolver: &mut Resolver,
        from: NameId,
        to: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        let mut stack = vec![(from, to)];
        while let Some((from, to)) = stack.pop() {
            let children: Vec<NameId> = names.children(from).collect();
            for child in children {
                let component = names.component(child).to_vec();
                let target = names.child(to, &component)?;
                let now = names.now(child);
                let touched = self.is_touched(child);
                resolver.moved(child, target);
                resolver.forget(child);
                match now.presence {
                    Presence::Present if touched || now.origin == Origin::Made => {
                        let moved = self.take_away(names, child, now.kind, moment);
                        self.made(names, resolver, target, moved, Op::Rename, moment);
                    }
                    Presence::Present => {
                        names.set(child, Now::default());
                        names.set(target, now);
                    }
                    Presence::Absent
                        if self
                            .find(child)
                            .is_some_and(|touch| !touch.is_before(moment)) =>
                    {
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

    /// Two names changed places.
    fn exchanged(
        &mut self,
        names: &mut Names,
        one: NameId,
        other: NameId,
        moment: &Moment,
    ) -> Result<(), Full> {
        let of = |names: &Names, name| {
            let now = names.now(name);
            if now.presence == Presence::Present {
                now
            } else {
                Now::present(now.kind, Origin::Before(name))
            }
        };
        let (first, second) = (of(names, one), of(names, other));
        self.moved_directories = true;
        for (name, now) in [(one, second), (other, first)] {
            self.touch(name, Op::Rename, moment).needed = true;
            self.settle(name, moment);
            names.set(name, now);
        }
        // What lies below is rarely known and rarer to matter: each name may now be at either place, and the end tells.
        let mut stack = vec![(one, other)];
        while let Some((one, other)) = stack.pop() {
            for (here, there) in [(one, other), (other, one)] {
                let children: Vec<NameId> = names.children(here).collect();
                for child in children {
                    let component = names.component(child).to_vec();
                    let twin = names.child(there, &component)?;
                    names.set(child, Now::default());
                    names.set(twin, Now::default());
                    if self.is_touched(child) && !self.is_touched(twin) {
                        self.touch(twin, Op::Rename, moment);
                    }
                    if here == one {
                        stack.push((child, twin));
                    }
                }
            }
        }
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

    /// A file that the job did not make and that was written through a hard link which the job made is written at its other name as well.
    /// To be called when all events are in. The answer is for how many such links the other name is not known.
    #[must_use]
    pub fn follow_links(&mut self) -> u64 {
        let names: Vec<NameId> = self.foreign_uses().collect();
        let mut unknown = 0;
        for name in names {
            unknown += u64::from(!self.changed_through_link(name));
        }
        unknown
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

    /// Says what each name is. `ends` holds what is there now, for every name of [`Writes::by_directory`]; a name whose end cannot
    /// be told counts as there.
    #[must_use]
    pub fn conclude(mut self, names: &Names, ends: &HashMap<NameId, End>) -> Concluded {
        let foreign: HashSet<NameId> = self.foreign_uses().collect();
        self.learn_kinds(names, ends);
        let mut ending = Ending {
            writes: &self,
            names,
            ends,
            foreign: &foreign,
            absent: HashMap::new(),
        };
        let written: Vec<Written> = self
            .touches
            .iter()
            .filter_map(|touch| ending.written(touch))
            .collect();
        let directories = self
            .touches
            .iter()
            .filter(|touch| ending.is_passing(touch))
            .map(|touch| touch.name)
            .collect();
        Concluded {
            written,
            passing: directories,
        }
    }

    /// Says that the file of a hard link is written at its other name. The answer is whether that name is known.
    fn changed_through_link(&mut self, name: NameId) -> bool {
        let mut name = name;
        // A link can be one of a link; a circle (made, removed and made the other way round) ends at a name that is done.
        while let Some(source) = self.links.remove(&name) {
            let Some(source) = source else { return false };
            if let Some(touch) = self.find(name) {
                let Seen {
                    first_ms: ms, by, ..
                } = touch.seen;
                let moment = Moment {
                    time_ns: touch.last_ns,
                    ms,
                    tid: touch.last_tid,
                    by,
                };
                self.touch(source, Op::Open, &moment).needed = true;
            }
            name = source;
        }
        true
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
                && let Some(&slot) = self.index.get(first.index())
                && let Some(touch) = self.touches.get_mut(slot as usize)
                && touch.before == Kind::Unknown
            {
                touch.before = kind;
            }
        }
    }
}

/// What all names are at the end.
#[derive(Debug)]
pub struct Concluded {
    /// Each name that was written.
    pub written: Vec<Written>,
    /// Names that are not there now and may never have been there before: no directory to name others by.
    pub passing: HashSet<NameId>,
}

/// The look back at the end.
struct Ending<'a> {
    writes: &'a Writes,
    names: &'a Names,
    ends: &'a HashMap<NameId, End>,
    /// Names at which an inode was opened that the job never created.
    foreign: &'a HashSet<NameId>,
    /// Directories that were not there before the job, as far as asked.
    absent: HashMap<NameId, bool>,
}

impl Ending<'_> {
    fn end(&self, name: NameId) -> End {
        self.ends.get(&name).copied().unwrap_or(End::Unknown)
    }

    /// What was at a name before the job.
    fn before(&mut self, touch: &Touch) -> Before {
        let parent = self.names.parent(touch.name);
        if parent != touch.name && self.was_absent(parent) {
            return Before::Nothing;
        }
        if touch.certain {
            return Before::Something;
        }
        let foreign = self.foreign.contains(&touch.name);
        if touch.made == 0 && touch.over == 0 {
            // Only used and taken away, or of no weight at all: then it is there now, or it never was.
            let needed = touch.needed || touch.taken > 0 || foreign;
            return if needed {
                Before::Something
            } else {
                Before::Unknown
            };
        }
        if foreign && touch.over == 0 && !touch.anonymous {
            return Before::Something;
        }
        let now = i64::from(self.end(touch.name) != End::Nothing);
        let most = now + i64::from(touch.taken) - i64::from(touch.made);
        let least = most - i64::from(touch.over);
        if most <= 0 {
            Before::Nothing
        } else if least >= 1 {
            Before::Something
        } else {
            Before::Unknown
        }
    }

    /// Whether a directory is known not to have been there before the job, so that nothing in it was.
    fn was_absent(&mut self, directory: NameId) -> bool {
        if directory == NameId::ROOT {
            return false;
        }
        if let Some(&absent) = self.absent.get(&directory) {
            return absent;
        }
        let writes = self.writes;
        let absent = match writes.find(directory) {
            Some(touch) if touch.made > 0 => self.before(touch) == Before::Nothing,
            _ => self.was_absent(self.names.parent(directory)),
        };
        self.absent.insert(directory, absent);
        absent
    }

    fn written(&mut self, touch: &Touch) -> Option<Written> {
        let outcome = self.outcome(touch);
        (outcome != Outcome::default()).then_some(Written {
            name: touch.name,
            outcome,
            seen: touch.seen,
        })
    }

    fn outcome(&mut self, touch: &Touch) -> Outcome {
        let end = self.end(touch.name);
        let before = self.before(touch);
        let now = self.names.now(touch.name);
        let weightless = touch.made == 0 && touch.over == 0 && touch.taken == 0;
        let mut outcome = Outcome {
            as_file: matches!(end, End::Other | End::Unknown),
            ..Outcome::default()
        };
        match before {
            Before::Something => {
                let was_directory = match touch.before {
                    Kind::Directory => true,
                    Kind::Unknown => {
                        end == End::Directory || self.names.children(touch.name).next().is_some()
                    }
                    Kind::Link | Kind::Other => false,
                };
                outcome.as_directory = was_directory || end == End::Directory;
                outcome.as_file |= !was_directory;
            }
            Before::Nothing if end == End::Nothing => {
                // A plain directory that came and went is nothing to anybody.
                outcome.transient = touch.file;
            }
            // It came with names that the end shows, or was listed for one that it does not show.
            Before::Unknown if weightless && end == End::Nothing => {
                outcome.transient =
                    touch.seen.ops.has(Op::Open) || touch.seen.ops.has(Op::Truncate);
            }
            Before::Unknown if end == End::Nothing => outcome.untold = true,
            // A directory that was moved here, not made here.
            Before::Nothing | Before::Unknown => {
                outcome.as_directory = end == End::Directory
                    && matches!(now.origin, Origin::Before(_) | Origin::Unknown)
                    && touch.seen.ops.has(Op::Rename);
            }
        }
        outcome
    }

    /// Whether a name is not there now and may not have been there before.
    fn is_passing(&mut self, touch: &Touch) -> bool {
        self.end(touch.name) == End::Nothing && self.before(touch) != Before::Something
    }
}

/// What is at a name, by the events or by an earlier look.
fn kind_at(names: &Names, resolver: &Resolver, name: NameId) -> Kind {
    let now = names.now(name);
    if now.presence == Presence::Present && now.kind != Kind::Unknown {
        return now.kind;
    }
    resolver.kind(name)
}

fn was(kind: Kind) -> Was {
    match kind {
        Kind::Directory => Was::Directory,
        Kind::Link | Kind::Other => Was::File,
        Kind::Unknown => Was::Unknown,
    }
}

#[cfg(test)]
mod tests;
