//! What all that was written comes to when the job has ended. Pure: what is there now is given.

use hashbrown::{HashMap, HashSet};

use crate::{
    look::End,
    names::{Kind, NameId, Names, Now, Origin, Presence},
    seen::{Op, Seen},
    touch::{Before, Touch},
    writes::Writes,
};

/// Renames of one directory that are looked at: more only happen in a circle.
const MOST_MOVES: usize = 100;

/// What a name is to the write set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It counts as a name that is no directory.
    pub as_file: bool,
    /// It counts as a directory: `d/`.
    pub as_directory: bool,
    /// What may have been there is not there, and it is not known whether it was: it counts as `dir/*`.
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

/// What all names are at the end.
#[derive(Debug)]
pub struct Concluded {
    /// Each name that counts, or came and went.
    pub written: Vec<Written>,
    /// Names that are not there now and may never have been there before: no directory to name others by.
    pub passing: HashSet<NameId>,
}

/// The look back at the end.
pub struct Ending<'a> {
    writes: &'a Writes,
    names: &'a Names,
    ends: &'a HashMap<NameId, End>,
    /// Names at which an inode was opened that the job never created.
    foreign: &'a HashSet<NameId>,
    /// Directories that were not there before the job, as far as asked.
    absent: HashMap<NameId, bool>,
}

impl<'a> Ending<'a> {
    /// `ends` says what is there now, `foreign` at which names an inode was opened that the job never created.
    #[must_use]
    pub fn new(
        writes: &'a Writes,
        names: &'a Names,
        ends: &'a HashMap<NameId, End>,
        foreign: &'a HashSet<NameId>,
    ) -> Self {
        Self {
            writes,
            names,
            ends,
            foreign,
            absent: HashMap::new(),
        }
    }

    /// Says what each name is.
    #[must_use]
    pub fn conclude(mut self) -> Concluded {
        let mut written = Vec::new();
        let mut passing = HashSet::new();
        let writes = self.writes;
        for touch in writes.touches() {
            let before = self.before(touch);
            let outcome = self.outcome(touch, before);
            if outcome != Outcome::default() {
                let &Touch { name, seen, .. } = touch;
                written.push(Written {
                    name,
                    outcome,
                    seen,
                });
            }
            if before != Before::Something && self.end(touch.name) == End::Nothing {
                passing.insert(touch.name);
            }
        }
        Concluded { written, passing }
    }

    fn end(&self, name: NameId) -> End {
        self.ends.get(&name).copied().unwrap_or(End::Unknown)
    }

    fn is_disordered(&self, name: NameId) -> bool {
        let now = self.names.now(name);
        let touch = self.writes.find(name);
        touch.is_some_and(|touch| touch.is_disordered(now.presence, self.end(name)))
    }

    fn before(&mut self, touch: &Touch) -> Before {
        if self.was_absent(self.names.parent(touch.name)) {
            return Before::Nothing;
        }
        let now = self.names.now(touch.name);
        let foreign = self.foreign.contains(&touch.name);
        touch.before(now.presence, self.end(touch.name), foreign)
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
            Some(touch) if touch.is_made() => self.before(touch) == Before::Nothing,
            _ => self.was_absent(self.names.parent(directory)),
        };
        self.absent.insert(directory, absent);
        absent
    }

    fn outcome(&self, touch: &Touch, before: Before) -> Outcome {
        let end = self.end(touch.name);
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
            // A plain directory that came and went is nothing to anybody.
            Before::Nothing if end == End::Nothing => outcome.transient = touch.file,
            // Listed for what the end does not show, or a file of the job that came there by ways unseen.
            Before::Unknown if touch.is_weightless() && end == End::Nothing => {
                outcome.transient = touch.file
            }
            Before::Unknown if end == End::Nothing => outcome.untold = true,
            Before::Nothing | Before::Unknown if end == End::Directory => {
                let made = self.is_made_directory(touch.name);
                // Where only directories ever were, none was moved: records overtook each other.
                let only_made = !touch.file && !touch.seen.ops.has(Op::Rename);
                // By another order, it may have been one that was taken away before.
                let taken = before == Before::Unknown && touch.is_taken() && touch.is_close();
                outcome.as_directory = taken || !made && !only_made;
                // What may have been there before is not there any more, though the name is.
                outcome.untold = made && touch.file && before == Before::Unknown;
            }
            Before::Nothing | Before::Unknown => {}
        }
        outcome
    }

    /// Whether the directory at a name was made by the job, there or elsewhere: what is known to have moved may be another thing
    /// when the events of any name on its way do not fit each other.
    fn is_made_directory(&self, name: NameId) -> bool {
        let Now {
            presence: Presence::Present,
            kind: Kind::Directory,
            origin: Origin::Made(maker),
            ..
        } = self.names.now(name)
        else {
            return false;
        };
        let back = |&name: &NameId| self.writes.moved_from(name).filter(|_| name != maker);
        let mut way = std::iter::successors(Some(name), back)
            .take(MOST_MOVES)
            .chain([maker]);
        let contested = self.writes.find(name).is_some_and(Touch::is_contested);
        !contested && !way.any(|name| self.is_disordered(name))
    }
}
