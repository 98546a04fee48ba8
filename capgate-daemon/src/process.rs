//! The process tree of one job, as far as evidence needs it: who ran what, and whose child it was.
//!
//! An *image* is one process running one program. A fork makes an image like its parent's, an exec a new one beside the old.
//! Entries keep the image that they came from, so that evidence shows the program of that time. Records of different CPUs may
//! arrive in another order than things happened: a process that nobody introduced is taken as it is, without a parent.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::{HashMap, hash_map::Entry};

use crate::{event::Task, names::NameId};

/// Processes that have ended and are still known, for records that come late and for what is killed at the end.
const RECENT: usize = 4096;
/// Images that are kept before the first look for ones that nobody needs.
const FIRST_SWEEP: usize = 4096;
/// Most ancestors that evidence lists.
const CHAIN: usize = 32;

/// An image in [`Processes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageId(u32);

impl ImageId {
    /// No image: the kernel did not say which process it was, or memory ran out.
    pub const UNKNOWN: Self = Self(u32::MAX);
}

/// The program of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Program {
    /// Started before the job was watched, or its path could not be told.
    #[default]
    Unknown,
    /// A file.
    File(NameId),
    /// A memfd, by the name that its maker gave it.
    Memfd(Arc<[u8]>),
}

/// A program that began to run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Which.
    pub program: Program,
    /// It is a script, and another program of the same exec runs it.
    pub is_script: bool,
    /// Device, inode and size of its file, as the kernel told them; a script's may be unknown.
    pub file: Option<((u32, u64), u64)>,
}

/// One process running one program.
#[derive(Clone, Debug)]
pub struct Image {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// What runs.
    pub program: Program,
    /// Its arguments, a NUL after each.
    pub argv: Arc<[u8]>,
    /// How the process ended while it ran this, as [`capgate_common::evidence::Process::status`] has it.
    pub status: Option<u32>,
    parent: ImageId,
}

struct Process {
    start_ns: u64,
    image: ImageId,
    ended: bool,
}

/// All processes of one job.
pub struct Processes {
    /// By process id: the latest that had it.
    known: HashMap<u32, Process>,
    /// Ended ones that are still in `known`, oldest first.
    ended: VecDeque<Task>,
    images: Vec<Option<Image>>,
    free: Vec<u32>,
    sweep_at: usize,
    /// Bytes of argv that images hold, shared ones counted once for each.
    argv_bytes: usize,
    limit: usize,
}

impl Processes {
    /// No processes. About `limit` bytes are used for images; what comes after is known by its process id only.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            known: HashMap::new(),
            ended: VecDeque::new(),
            images: Vec::new(),
            free: Vec::new(),
            sweep_at: FIRST_SWEEP,
            argv_bytes: 0,
            limit,
        }
    }

    /// The image that a task runs now.
    pub fn image_of(&mut self, task: &Task) -> ImageId {
        if task.tgid == 0 {
            // A packet that left on somebody else's back.
            return ImageId::UNKNOWN;
        }
        if let Some(process) = self.known.get(&task.tgid)
            && process.start_ns == task.start_ns
        {
            return process.image;
        }
        let image = self.add(Image {
            pid: task.tgid,
            program: Program::Unknown,
            argv: Arc::default(),
            status: None,
            parent: ImageId::UNKNOWN,
        });
        self.know(task, image);
        image
    }

    /// A process was moved into the job. When it began is not known: its first record will tell.
    pub fn joined(&mut self, tgid: u32) {
        if !self.is_member(tgid) {
            self.image_of(&Task {
                tgid,
                tid: tgid,
                start_ns: 0,
            });
        }
    }

    /// A process was made.
    pub fn forked(&mut self, parent: &Task, child: &Task) {
        let parent = self.image_of(parent);
        let Some(like) = self.get(parent).cloned() else {
            self.image_of(child);
            return;
        };
        let new = Image {
            pid: child.tgid,
            status: None,
            parent,
            ..like
        };
        match self.known.get(&child.tgid) {
            // The child's own records came first: it may have started a program already.
            Some(process) if process.start_ns == child.start_ns => {
                let image = process.image;
                if let Some(known) = self.get_mut(image) {
                    known.parent = parent;
                    if known.program == Program::Unknown {
                        known.program = new.program;
                        known.argv = new.argv;
                    }
                }
            }
            _ => {
                let image = self.add(new);
                self.know(child, image);
            }
        }
    }

    /// A process started a program.
    pub fn executed(&mut self, task: &Task, program: Program, argv: &[Vec<u8>]) -> ImageId {
        let old = self.image_of(task);
        let parent = self.get(old).map_or(ImageId::UNKNOWN, |image| image.parent);
        let bytes: usize = argv.iter().map(|arg| arg.len() + 1).sum();
        let mut text = Vec::with_capacity(bytes);
        // Arguments are cut before processes are: the tree is worth more.
        if self.argv_bytes + bytes <= self.limit / 2 {
            for arg in argv {
                text.extend_from_slice(arg);
                text.push(0);
            }
        }
        let image = self.add(Image {
            pid: task.tgid,
            program,
            argv: text.into(),
            status: None,
            parent,
        });
        self.know(task, image);
        image
    }

    /// A process ended. `code` is the kernel's: `status << 8`, or the number of a signal, and 0x80 with a core.
    pub fn exited(&mut self, task: &Task, code: u32) {
        let image = self.image_of(task);
        if let Some(image) = self.get_mut(image) {
            image.status = Some(match code & 0x7f {
                0 => code >> 8 & 0xff,
                signal => 128 + signal,
            });
        }
        if let Some(process) = self.known.get_mut(&task.tgid)
            && !std::mem::replace(&mut process.ended, true)
        {
            self.ended.push_back(*task);
        }
        if self.ended.len() > RECENT
            && let Some(task) = self.ended.pop_front()
            && let Entry::Occupied(entry) = self.known.entry(task.tgid)
            && entry.get().start_ns == task.start_ns
        {
            entry.remove();
        }
    }

    /// Whether a process id belongs to the job, or did a moment ago.
    #[must_use]
    pub fn is_member(&self, tgid: u32) -> bool {
        self.known.contains_key(&tgid)
    }

    /// The image that a process ran last, by its id.
    #[must_use]
    pub fn last_image(&self, tgid: u32) -> ImageId {
        self.known
            .get(&tgid)
            .map_or(ImageId::UNKNOWN, |process| process.image)
    }

    /// An image by its id.
    #[must_use]
    pub fn get(&self, id: ImageId) -> Option<&Image> {
        self.images.get(id.0 as usize)?.as_ref()
    }

    /// An image and its ancestors' ones, nearest first, as far as they are known.
    pub fn chain(&self, id: ImageId) -> impl Iterator<Item = &Image> {
        std::iter::successors(self.get(id), |image| self.get(image.parent)).take(CHAIN)
    }

    /// Whether there are so many images that it is time to [`Processes::sweep`].
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        self.images.len() - self.free.len() >= self.sweep_at
    }

    /// Forgets the images that neither a known process nor `needed` nor an image kept for these refers to.
    pub fn sweep(&mut self, needed: impl Iterator<Item = ImageId>) {
        let mut keep = vec![false; self.images.len()];
        let known = self.known.values().map(|process| process.image);
        for mut id in known.chain(needed) {
            while let Some(image) = self.get(id)
                && !std::mem::replace(&mut keep[id.0 as usize], true)
            {
                id = image.parent;
            }
        }
        self.free.clear();
        self.argv_bytes = 0;
        for (index, (slot, keep)) in (0u32..).zip(self.images.iter_mut().zip(keep)) {
            match slot {
                Some(image) if keep => self.argv_bytes += image.argv.len(),
                _ => {
                    *slot = None;
                    self.free.push(index);
                }
            }
        }
        self.sweep_at = FIRST_SWEEP.max(2 * (self.images.len() - self.free.len()));
    }

    fn get_mut(&mut self, id: ImageId) -> Option<&mut Image> {
        self.images.get_mut(id.0 as usize)?.as_mut()
    }

    fn know(&mut self, task: &Task, image: ImageId) {
        let process = Process {
            start_ns: task.start_ns,
            image,
            ended: false,
        };
        self.known.insert(task.tgid, process);
    }

    fn add(&mut self, image: Image) -> ImageId {
        let bytes = image.argv.len();
        let index = match self.free.pop() {
            Some(index) => {
                self.images[index as usize] = Some(image);
                index
            }
            None if self.images.len() * size_of::<Option<Image>>() < self.limit / 2 => {
                self.images.push(Some(image));
                u32::try_from(self.images.len() - 1).unwrap_or(u32::MAX)
            }
            None => return ImageId::UNKNOWN,
        };
        self.argv_bytes += bytes;
        ImageId(index)
    }
}

#[cfg(test)]
mod tests;
