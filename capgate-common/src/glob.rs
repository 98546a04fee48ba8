//! Globs over ledger entries, as contracts write them.
//!
//! A glob is matched against the text of an entry, so that a reviewer can paste an entry from a ledger and replace the part that
//! moves. Hence a backslash is an ordinary character (it is part of `\xNN`), `*` and `?` do not cross a slash, `**` does.
//! A relative glob matches inside the root only; one that begins with `/`, `~` or `memfd:` only entries that begin so.

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// A set of globs that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct GlobError {
    /// Which glob, counted from 0; `None` when it is the whole set (too large together).
    pub index: Option<usize>,
    /// What is wrong.
    pub problem: String,
}

impl GlobError {
    fn at(index: usize, problem: impl Into<String>) -> Self {
        Self {
            index: Some(index),
            problem: problem.into(),
        }
    }
}

/// Globs ready to match.
#[derive(Clone, Debug)]
pub struct GlobPatterns {
    set: GlobSet,
    /// For each member of `set`: which glob it came from, and the entries that it is for.
    members: Vec<(usize, Anchor)>,
}

impl GlobPatterns {
    /// Globs that match whole entries; the trailing slash of a directory's entry need not be written.
    ///
    /// # Errors
    /// When a glob is malformed, can match nothing, or matches everything in the root, in the home or outside.
    pub fn new(globs: &[String]) -> Result<Self, GlobError> {
        let members = globs.iter().map(String::as_str).enumerate();
        Self::compile(members.collect())
    }

    /// No globs: they match nothing.
    pub fn none() -> Self {
        Self {
            set: GlobSet::empty(),
            members: Vec::new(),
        }
    }

    /// Globs that name directories: they match the directory and everything below.
    ///
    /// # Errors
    /// As [`GlobPatterns::new`].
    pub fn directories(globs: &[String]) -> Result<Self, GlobError> {
        let below: Vec<String> = globs
            .iter()
            .map(|glob| format!("{}/**", glob.trim_end_matches('/')))
            .collect();
        let itself = globs.iter().map(|glob| match glob.trim_end_matches('/') {
            "" => glob.as_str(),
            trimmed => trimmed,
        });
        let members = itself.enumerate();
        Self::compile(
            members
                .chain(below.iter().map(String::as_str).enumerate())
                .collect(),
        )
    }

    fn compile(globs: Vec<(usize, &str)>) -> Result<Self, GlobError> {
        let mut set = GlobSetBuilder::new();
        let mut members = Vec::with_capacity(globs.len());
        for (index, text) in globs {
            set.add(parse(text).map_err(|problem| GlobError::at(index, problem))?);
            members.push((index, Anchor::of(text)));
        }
        let set = set.build().map_err(|error| GlobError {
            index: None,
            problem: format!("the patterns are too complex together: {}", error.kind()),
        })?;
        let globs = Self { set, members };
        match globs.first_that_matches_everything() {
            Some(index) => Err(GlobError::at(
                index,
                "this matches everything; name a directory or a part of the name",
            )),
            None => Ok(globs),
        }
    }

    /// Indexes of the globs that match an entry, ascending, each once; empty when none does.
    pub fn matching(&self, entry: &str) -> Vec<usize> {
        let anchor = Anchor::of(entry);
        let mut found = self.members_matching(entry);
        if let Some(name) = entry.strip_suffix('/') {
            found.extend(self.members_matching(name));
        }
        let mut globs: Vec<usize> = found
            .into_iter()
            .filter_map(|member| self.members.get(member))
            .filter(|(_, own)| *own == anchor)
            .map(|&(glob, _)| glob)
            .collect();
        globs.sort_unstable();
        globs.dedup();
        globs
    }

    fn members_matching(&self, text: &str) -> Vec<usize> {
        self.set.matches_candidate(&Candidate::from_bytes(text))
    }

    /// Whether any glob matches an entry.
    pub fn matches(&self, entry: &str) -> bool {
        !self.matching(entry).is_empty()
    }

    /// A glob is taken to match everything when, at some depth, it matches names that have nothing in common.
    fn first_that_matches_everything(&self) -> Option<usize> {
        const UNRELATED: [&str; 3] = ["q7", "Zk-4", "3_w"];
        const DEPTHS: usize = 6;
        ["", "/", "~/"]
            .iter()
            .flat_map(|anchor| (1..=DEPTHS).map(move |depth| (anchor, depth)))
            .filter_map(|(anchor, depth)| {
                let mut common: Option<Vec<usize>> = None;
                for name in UNRELATED {
                    let path = format!("{anchor}{}", vec![name; depth].join("/"));
                    let matching = self.matching(&path);
                    common = Some(match common {
                        None => matching,
                        Some(common) => common
                            .into_iter()
                            .filter(|index| matching.contains(index))
                            .collect(),
                    });
                }
                common?.first().copied()
            })
            .min()
    }
}

/// What kind of entry a text is by how it begins. Entries of different kinds never look alike (see `pathform`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Root,
    Absolute,
    Home,
    Memfd,
}

impl Anchor {
    fn of(text: &str) -> Self {
        if text.starts_with('/') {
            Self::Absolute
        } else if text == "~" || text.starts_with("~/") {
            Self::Home
        } else if text.starts_with("memfd:") {
            Self::Memfd
        } else {
            Self::Root
        }
    }
}

/// The glob that matches one entry and nothing else.
pub fn literal(entry: &str) -> String {
    let text = globset::escape(entry);
    // At the beginning it would stand for a variable.
    match text.strip_prefix('$') {
        Some(rest) => format!("[$]{rest}"),
        None => text,
    }
}

/// Whether an entry lies in the root.
pub(crate) fn is_in_root(entry: &str) -> bool {
    Anchor::of(entry) == Anchor::Root
}

fn parse(text: &str) -> Result<Glob, String> {
    if text.is_empty() {
        return Err("an empty pattern".to_owned());
    }
    if let Some(control) = text.chars().find(char::is_ascii_control) {
        return Err(format!(
            "a control character; an entry has it as `\\x{:02x}`",
            control as u32
        ));
    }
    let names = text.strip_prefix('/').unwrap_or(text);
    let names = names.strip_suffix('/').unwrap_or(names);
    if text != "/" && names.split('/').any(|name| matches!(name, "" | "." | "..")) {
        return Err("`.`, `..` and `//` are in no entry".to_owned());
    }
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(false)
        .build()
        .map_err(|error| error.kind().to_string())
}

#[cfg(test)]
mod tests;
