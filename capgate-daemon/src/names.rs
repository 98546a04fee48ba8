//! The names of one job: a tree of path components. A path is stored once, whatever is known about it hangs on its node, and
//! what lies below a directory can be listed when the directory is renamed.
//!
//! A node is a *name*, not a file: after `mv a b` both nodes stay, and what is known to be there ([`Now`]) has moved.
//! Invariant: no node is named ``, `.` or `..`, so the path of a node is absolute and normal.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A name in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(u32);

impl NameId {
    /// `/`.
    pub const ROOT: Self = Self(0);
    const NONE: Self = Self(u32::MAX);

    /// Counts from 0, without gaps.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// The bound on names is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a file is, as far as names care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not known.
    #[default]
    Unknown,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// Whether something is at a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// No event told yet.
    #[default]
    Unknown,
    /// The last event removed it or took it away.
    Absent,
    /// The last event made or used it.
    Present,
}

/// Where the thing at a name came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Not known.
    #[default]
    Unknown,
    /// The job made it, at that name.
    Made(NameId),
    /// It is what was at that name before the job.
    Before(NameId),
}

/// What the events so far say is at a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Whether something is there.
    pub presence: Presence,
    /// What it is.
    pub kind: Kind,
    /// Where it came from.
    pub origin: Origin,
    /// For [`Kind::Link`] that the job made: its text.
    pub target: Option<TargetId>,
}

impl Now {
    /// Nothing is there.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            ..Self::default()
        }
    }

    /// Something is there.
    #[must_use]
    pub fn present(kind: Kind, origin: Origin) -> Self {
        Self {
            presence: Presence::Present,
            kind,
            origin,
            target: None,
        }
    }
}

/// The text of a symbolic link in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetId(u32);

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: NameId,
    /// Where its component begins in `Names::text`.
    text: u32,
    len: u16,
    first_child: NameId,
    next_sibling: NameId,
    now: Now,
}

/// The tree.
pub struct Names {
    nodes: Vec<Node>,
    /// Nodes by parent and component.
    index: HashTable<NameId>,
    hasher: DefaultHashBuilder,
    text: Vec<u8>,
    targets: Vec<Box<[u8]>>,
    target_bytes: usize,
    /// The directory that the last path was in: most paths follow one in the same directory.
    last: (Vec<u8>, NameId),
    most_names: usize,
    most_bytes: usize,
}

impl Names {
    /// Just `/`. At most `most_names` names are taken, of `most_bytes` bytes together.
    #[must_use]
    pub fn new(most_names: usize, most_bytes: usize) -> Self {
        let root = Node {
            parent: NameId::ROOT,
            text: 0,
            len: 0,
            first_child: NameId::NONE,
            next_sibling: NameId::NONE,
            now: Now::present(Kind::Directory, Origin::Before(NameId::ROOT)),
        };
        Self {
            nodes: vec![root],
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            text: Vec::new(),
            targets: Vec::new(),
            target_bytes: 0,
            last: (Vec::new(), NameId::ROOT),
            most_names: most_names.min(u32::MAX as usize - 1),
            most_bytes: most_bytes.min(u32::MAX as usize),
        }
    }

    /// The name at an absolute path as the kernel gives it: no symbolic links, `.` or `..` in it. What is above the last
    /// component is a directory, since the kernel went through it.
    ///
    /// # Errors
    /// When the bound is reached.
    pub fn path(&mut self, path: &[u8]) -> Result<NameId, Full> {
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let (parent, leaf) = path.split_at(end);
        let dir = if self.last.0 == parent {
            self.last.1
        } else {
            let mut dir = NameId::ROOT;
            for component in parent.split(|&byte| byte == b'/') {
                dir = self.child(dir, component)?;
                let now = &mut self.nodes[dir.index()].now;
                if now.presence == Presence::Unknown {
                    *now = Now::present(Kind::Directory, Origin::Before(dir));
                }
            }
            self.last.0.clear();
            self.last.0.extend_from_slice(parent);
            self.last.1 = dir;
            dir
        };
        self.child(dir, leaf.strip_prefix(b"/").unwrap_or(leaf))
    }

    /// The name of a component in a directory; the directory itself for an empty component and `.`.
    ///
    /// # Errors
    /// When the bound is reached.
    pub fn child(&mut self, parent: NameId, component: &[u8]) -> Result<NameId, Full> {
        if matches!(component, b"" | b".") {
            return Ok(parent);
        }
        let hash = self.hasher.hash_one((parent, component));
        if let Some(&id) = self.index.find(hash, |&id| self.is(id, parent, component)) {
            return Ok(id);
        }
        let len = u16::try_from(component.len()).map_err(|_| Full)?;
        if self.nodes.len() >= self.most_names
            || self.text.len() + self.target_bytes + component.len() > self.most_bytes
        {
            return Err(Full);
        }
        let id = NameId(u32::try_from(self.nodes.len()).map_err(|_| Full)?);
        let text = u32::try_from(self.text.len()).map_err(|_| Full)?;
        self.text.extend_from_slice(component);
        let next_sibling = std::mem::replace(&mut self.nodes[parent.index()].first_child, id);
        self.nodes.push(Node {
            parent,
            text,
            len,
            first_child: NameId::NONE,
            next_sibling,
            now: Now::default(),
        });
        let Self {
            index,
            hasher,
            nodes,
            text,
            ..
        } = self;
        index.insert_unique(hash, id, |&id| {
            let node = &nodes[id.index()];
            hasher.hash_one((node.parent, component_of(node, text)))
        });
        Ok(id)
    }

    fn is(&self, id: NameId, parent: NameId, component: &[u8]) -> bool {
        let node = &self.nodes[id.index()];
        node.parent == parent && component_of(node, &self.text) == component
    }

    /// The directory of a name; of `/` itself.
    #[must_use]
    pub fn parent(&self, id: NameId) -> NameId {
        self.nodes[id.index()].parent
    }

    /// The last component of a name; empty for `/`.
    #[must_use]
    pub fn component(&self, id: NameId) -> &[u8] {
        component_of(&self.nodes[id.index()], &self.text)
    }

    /// The names directly below one.
    pub fn children(&self, id: NameId) -> impl Iterator<Item = NameId> {
        let first = self.nodes[id.index()].first_child.some();
        std::iter::successors(first, |&id| self.nodes[id.index()].next_sibling.some())
    }

    /// The names above one, nearest first, `/` last; none for `/`.
    pub fn ancestors(&self, id: NameId) -> impl Iterator<Item = NameId> {
        let up = |id: NameId| (id != NameId::ROOT).then(|| self.parent(id));
        std::iter::successors(up(id), move |&id| up(id))
    }

    /// The absolute path of a name.
    #[must_use]
    pub fn bytes(&self, id: NameId) -> Vec<u8> {
        if id == NameId::ROOT {
            return b"/".to_vec();
        }
        let mut chain: Vec<NameId> = self
            .ancestors(id)
            .filter(|&id| id != NameId::ROOT)
            .collect();
        chain.reverse();
        chain.push(id);
        let mut path = Vec::with_capacity(64);
        for id in chain {
            path.push(b'/');
            path.extend_from_slice(self.component(id));
        }
        path
    }

    /// What is known to be at a name.
    #[must_use]
    pub fn now(&self, id: NameId) -> Now {
        self.nodes[id.index()].now
    }

    /// Says what is at a name.
    pub fn set(&mut self, id: NameId, now: Now) {
        self.nodes[id.index()].now = now;
    }

    /// The job made a symbolic link with this text. One whose text does not fit any more is of unknown kind.
    pub fn set_link(&mut self, id: NameId, text: &[u8]) {
        let fits = self.text.len() + self.target_bytes + text.len() <= self.most_bytes;
        let target = u32::try_from(self.targets.len()).ok().filter(|_| fits);
        let kind = if target.is_some() {
            Kind::Link
        } else {
            Kind::Unknown
        };
        if target.is_some() {
            self.targets.push(text.into());
            self.target_bytes += text.len() + size_of::<Box<[u8]>>();
        }
        let target = target.map(TargetId);
        self.set(
            id,
            Now {
                target,
                ..Now::present(kind, Origin::Made(id))
            },
        );
    }

    /// The text of a symbolic link.
    #[must_use]
    pub fn target(&self, id: TargetId) -> &[u8] {
        &self.targets[id.0 as usize]
    }
}

fn component_of<'a>(node: &Node, text: &'a [u8]) -> &'a [u8] {
    let start = node.text as usize;
    &text[start..start + usize::from(node.len)]
}

#[cfg(test)]
mod tests {
    use super::{Full, Kind, NameId, Names, Origin, Presence};

    #[test]
    fn a_path_is_one_name_however_it_is_reached() {
        let mut names = Names::new(100, 1000);
        let file = names.path(b"/a/b/c").expect("room");
        assert_eq!(names.path(b"/a/b/c"), Ok(file));
        let dir = names.path(b"/a/b").expect("room");
        assert_eq!(names.child(dir, b"c"), Ok(file));
        assert_eq!(names.child(dir, b"."), Ok(dir));
        assert_eq!(names.path(b"/"), Ok(NameId::ROOT));
        assert_eq!(names.bytes(file), b"/a/b/c");
        assert_eq!(names.bytes(NameId::ROOT), b"/");
        assert_eq!(names.parent(file), dir);
        assert_eq!(names.parent(NameId::ROOT), NameId::ROOT);
        assert_eq!(names.ancestors(file).count(), 3);
        assert_eq!(names.ancestors(NameId::ROOT).count(), 0);
    }

    #[test]
    fn what_the_kernel_went_through_is_a_directory() {
        let mut names = Names::new(100, 1000);
        let file = names.path(b"/a/c").expect("room");
        let dir = names.parent(file);
        assert_eq!(names.now(dir).kind, Kind::Directory);
        assert_eq!(names.now(dir).origin, Origin::Before(dir));
        assert_eq!(names.now(file).presence, Presence::Unknown);
    }

    #[test]
    fn children_are_listed() {
        let mut names = Names::new(100, 1000);
        for path in [&b"/a/x"[..], b"/a/y", b"/b"] {
            names.path(path).expect("room");
        }
        let dir = names.path(b"/a").expect("room");
        let mut found: Vec<&[u8]> = names.children(dir).map(|id| names.component(id)).collect();
        found.sort_unstable();
        assert_eq!(found, [b"x", b"y"]);
    }

    #[test]
    fn names_and_bytes_are_bounded() {
        let mut names = Names::new(3, 1000);
        assert!(names.path(b"/a/b").is_ok());
        assert_eq!(names.path(b"/a/c"), Err(Full));
        assert!(names.path(b"/a/b").is_ok(), "what is known stays known");
        let mut names = Names::new(100, 4);
        assert!(names.path(b"/ab").is_ok());
        assert_eq!(names.path(b"/abc"), Err(Full));
        let link = names.path(b"/ab").expect("known");
        names.set_link(link, b"far/too/long");
        assert_eq!(names.now(link).kind, Kind::Unknown);
    }
}
