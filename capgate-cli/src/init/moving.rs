//! Names that moved between runs, and the few patterns that cover them.
//!
//! Pure: from the write sets of some runs to patterns, each with the reason for it. A name is looked at down to its first part that
//! is not in every run; what parts of the same directory have in common across runs makes the pattern.

use std::collections::{BTreeMap, BTreeSet};

use capgate_common::glob::{GlobPatterns, literal};

use super::{
    looks::{Host, Look, generalise, is_random, merge_stars},
    tidy::{crowds, fewest, portable},
};

/// Directories that tools keep for themselves and fill as they see fit. Where names in one moved, all of it is covered.
const CACHES: [&str; 14] = [
    ".ccache",
    ".hypothesis",
    ".mypy_cache",
    ".npm",
    ".nyc_output",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "_cacache",
    "_logs",
    "ccache",
    "go-build",
    "incremental",
    "node_modules/.cache",
];
/// The one among them that every package has.
const EVERYWHERE: &str = "__pycache__";
/// Letters that programs begin the names of temporary files with, right before random ones.
const STEMS: [&str; 4] = ["tmp", "temp", "Rtmp", "cc"];
/// Longest end behind a process's number that is taken for the usual end of such names.
const MARK: usize = 8;
/// Shortest beginning or end that tells names of one kind from others.
const AFFIX: usize = 3;

/// Why a pattern is proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The names are others in each run.
    Moved,
    /// Some runs had them and others had not; the numbers of those that had, from 1.
    OnlyIn(Vec<usize>),
    /// A tool's own directory.
    Cache,
    /// They will be others.
    Looks(Look),
}

/// A pattern that is proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposed {
    /// The pattern.
    pub(crate) glob: String,
    /// Why.
    pub(crate) why: Why,
    /// The names of all runs that it covers.
    pub(crate) names: Vec<String>,
}

/// What to do about names.
#[derive(Debug, Default)]
pub(crate) struct Proposal {
    /// Patterns.
    pub(crate) patterns: Vec<Proposed>,
    /// Names that move and have too little in common for a pattern.
    pub(crate) uncovered: Vec<String>,
}

/// The names of one run.
pub(crate) type Names = BTreeSet<String>;

/// Proposes the patterns that make the runs alike.
pub(crate) fn propose(runs: &[Names], host: &Host) -> Proposal {
    let all: Names = runs.iter().flatten().cloned().collect();
    let moved: Vec<&String> = all
        .iter()
        .filter(|&name| runs.iter().any(|run| !run.contains(name)))
        .collect();
    let mut drafts = caches(&moved);
    drafts.extend(tagged(&moved, &all));
    let covered = compile(&drafts);
    let rest = moved.iter().filter(|name| !covered.matches(name));
    drafts.extend(movers(&rest.copied().collect::<Vec<_>>(), runs));
    let mut drafts: Vec<(String, Why)> = drafts
        .into_iter()
        .map(|draft| portable(draft, host))
        .collect();
    let covered = compile(&drafts);
    for name in all.iter().filter(|name| !covered.matches(name)) {
        drafts.extend(look(name, host, runs.len() == 1));
    }
    let drafts = crowds(fewest(drafts, &all));
    let patterns: Vec<Proposed> = drafts
        .into_iter()
        .filter_map(|(glob, why)| {
            let matcher = GlobPatterns::new(std::slice::from_ref(&glob)).ok()?;
            let names = all.iter().filter(|name| matcher.matches(name)).cloned();
            Some(Proposed {
                names: names.collect(),
                glob,
                why,
            })
        })
        .collect();
    let covered: Vec<(String, Why)> = patterns
        .iter()
        .map(|it| (it.glob.clone(), it.why.clone()))
        .collect();
    let covered = compile(&covered);
    let uncovered = moved.into_iter().filter(|name| !covered.matches(name));
    Proposal {
        uncovered: uncovered.cloned().collect(),
        patterns,
    }
}

/// Matches whatever one of the drafts matches; those that no contract may have match nothing.
pub(super) fn compile(drafts: &[(String, Why)]) -> GlobPatterns {
    let usable: Vec<String> = drafts
        .iter()
        .map(|(glob, _)| glob)
        .filter(|&glob| GlobPatterns::new(std::slice::from_ref(glob)).is_ok())
        .cloned()
        .collect();
    // Each is good alone; together they could only be too many, and then none covers anything.
    GlobPatterns::new(&usable).unwrap_or_else(|_| GlobPatterns::none())
}

/// The parts of a name, and what stands before the first: nothing in the root, `/` or `~/` elsewhere.
pub(super) fn parts(name: &str) -> (&'static str, Vec<&str>) {
    let name = name.strip_suffix('/').unwrap_or(name);
    let (anchor, rest) = if let Some(rest) = name.strip_prefix("~/") {
        ("~/", rest)
    } else if let Some(rest) = name.strip_prefix('/') {
        ("/", rest)
    } else {
        ("", name)
    };
    (anchor, rest.split('/').collect())
}

/// A glob for names in tools' own directories.
fn caches(moved: &[&String]) -> Vec<(String, Why)> {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for name in moved {
        let (anchor, mut parts) = parts(name);
        if name.ends_with('/') {
            parts.push("");
        }
        let hit = (0..parts.len().saturating_sub(1)).find_map(|at| {
            let cache = CACHES.into_iter().find(|cache| {
                let words: Vec<&str> = cache.split('/').collect();
                parts[at..].starts_with(&words) && parts.len() > at + words.len()
            })?;
            Some((at, cache))
        });
        if let Some((at, cache)) = hit {
            let above: String = parts[..at].iter().map(|part| format!("{part}/")).collect();
            found
                .entry(cache)
                .or_default()
                .insert(format!("{anchor}{above}"));
        }
    }
    let mut globs = Vec::new();
    for (cache, places) in found {
        let (inside, outside): (Vec<&String>, Vec<&String>) = places
            .iter()
            .partition(|place| !place.starts_with(['/', '~']));
        match inside.as_slice() {
            [] => {}
            [place] if cache != EVERYWHERE => globs.push(format!("{}{cache}/**", literal(place))),
            _ => globs.push(format!("**/{cache}/**")),
        }
        globs.extend(
            outside
                .iter()
                .map(|place| format!("{}{cache}/**", literal(place))),
        );
    }
    globs.into_iter().map(|glob| (glob, Why::Cache)).collect()
}

/// A glob for names in directories that their owners tagged as caches (the Cache Directory Tagging Specification).
fn tagged(moved: &[&String], all: &Names) -> Vec<(String, Why)> {
    let tags = all
        .iter()
        .filter_map(|name| name.strip_suffix("/CACHEDIR.TAG"));
    tags.filter(|directory| {
        let below = |name: &&&String| {
            name.strip_prefix(directory)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        moved.iter().any(|name| below(&name))
    })
    .map(|directory| (format!("{}/**", literal(directory)), Why::Cache))
    .collect()
}

/// The first parts of names that are not in every run, by the directory that they lie in.
#[derive(Default)]
struct Movers<'a> {
    /// Each part, with the runs that had it; whether names lie below it.
    parts: BTreeMap<&'a str, (BTreeSet<usize>, bool)>,
}

/// Globs for names that moved.
fn movers(moved: &[&String], runs: &[Names]) -> Vec<(String, Why)> {
    let prefixes: Vec<BTreeSet<String>> = runs.iter().map(prefixes).collect();
    let mut directories: BTreeMap<String, Movers<'_>> = BTreeMap::new();
    let mut globs = Vec::new();
    for name in moved {
        let (anchor, parts) = parts(name);
        let mut directory = anchor.to_owned();
        for (at, part) in parts.iter().enumerate() {
            let path = format!("{directory}{part}");
            let had: BTreeSet<usize> = (0..runs.len())
                .filter(|&run| prefixes[run].contains(&path))
                .collect();
            if had.len() < runs.len() {
                let movers = directories.entry(directory).or_default();
                let entry = movers.parts.entry(part).or_default();
                entry.0.extend(had);
                entry.1 |= at + 1 < parts.len();
                break;
            }
            if at + 1 == parts.len() {
                // All of its parts are in every run: a directory that some removed, say, and all wrote into.
                let had = (1..=runs.len()).filter(|run| runs[run - 1].contains(*name));
                globs.push((literal(name), Why::OnlyIn(had.collect())));
            }
            directory = format!("{path}/");
        }
    }
    let kinds = directories
        .iter()
        .flat_map(|(directory, movers)| kinds(directory, movers));
    globs.extend(kinds);
    globs
}

/// Every name of a run and every directory above one.
fn prefixes(run: &Names) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in run {
        let (anchor, parts) = parts(name);
        let mut path = anchor.to_owned();
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                path.push('/');
            }
            path.push_str(part);
            all.insert(path.clone());
        }
    }
    all
}

/// Sorts what moved in one directory into kinds, and makes a glob of each.
fn kinds(directory: &str, movers: &Movers<'_>) -> Vec<(String, Why)> {
    let mut globs = Vec::new();
    let mut left: BTreeMap<&str, &(BTreeSet<usize>, bool)> =
        movers.parts.iter().map(|(part, it)| (*part, it)).collect();
    // Names that differ in numbers and the like alone, then by how they begin, then all that is left.
    let keys: [fn(&str) -> String; 3] = [
        |part| mask(part),
        |part| part.chars().take(AFFIX).collect(),
        |_| String::new(),
    ];
    for key in keys {
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for part in left.keys() {
            groups.entry(key(part)).or_default().push(part);
        }
        for parts in groups.into_values() {
            let had: BTreeSet<usize> = parts
                .iter()
                .flat_map(|part| &left[part].0)
                .copied()
                .collect();
            // Of one kind are names that take turns.
            if parts.len() < 2 || had.len() < 2 {
                continue;
            }
            let below = parts.iter().any(|part| left[part].1);
            globs.push((whole(directory, &common(&parts), below), Why::Moved));
            parts.iter().for_each(|part| {
                left.remove(part);
            });
        }
    }
    let some: Vec<(String, Why)> = left
        .into_iter()
        .map(|(part, (had, below))| {
            let runs = had.iter().map(|run| run + 1).collect();
            (whole(directory, &literal(part), *below), Why::OnlyIn(runs))
        })
        .collect();
    globs.extend(some);
    globs
}

/// A part with its runs of digits taken out.
fn mask(part: &str) -> String {
    let mut masked = String::new();
    for character in part.chars() {
        match character {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            other => masked.push(other),
        }
    }
    masked
}

/// A glob for parts of one kind: what they begin and end with.
fn common(parts: &[&str]) -> String {
    let first = parts.first().copied().unwrap_or_default();
    let same = |other: &str, count: usize| {
        other
            .bytes()
            .zip(first.bytes())
            .take(count)
            .take_while(|(one, two)| one == two)
            .count()
    };
    let begin = parts
        .iter()
        .fold(first.len(), |count, part| same(part, count));
    let begin = begin_at_word(&first[..first.floor_char_boundary(begin)]);
    let end = parts.iter().fold(first.len() - begin.len(), |count, part| {
        let most = count.min(part.len() - begin.len());
        part.bytes()
            .rev()
            .zip(first.bytes().rev())
            .take(most)
            .take_while(|(one, two)| one == two)
            .count()
    });
    let end = end_at_word(&first[first.ceil_char_boundary(first.len() - end)..]);
    // Behind a process's number a long word is one more mark of that process, such as coverage's hash, which may be all letters.
    let marked = begin.ends_with("pid") && end.len() > MARK;
    let end = if is_random(end) || marked { "" } else { end };
    if begin.len() + end.len() < AFFIX && !begin.ends_with(['-', '_', '.']) {
        return "*".to_owned();
    }
    merge_stars(&format!("{}*{}", literal(begin), literal(end)))
}

/// As much of a common beginning as will be common the next time too: not half of a number or of a random word.
fn begin_at_word(begin: &str) -> &str {
    if let Some(stem) = STEMS.into_iter().find(|stem| begin.starts_with(stem))
        && begin[stem.len()..]
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_')
    {
        return &begin[..stem.len()];
    }
    let digits = begin.trim_end_matches(|it: char| it.is_ascii_digit());
    let words = digits.rfind(|it: char| !it.is_ascii_alphanumeric());
    match words {
        // Behind the last mark may be the first letters of what is random.
        Some(at) if digits.len() == begin.len() => {
            let mark = digits[at..].chars().next().map_or(1, char::len_utf8);
            &digits[..at + mark]
        }
        _ => digits,
    }
}

/// As much of a common end: from its first mark on.
fn end_at_word(end: &str) -> &str {
    end.find(|it: char| !it.is_ascii_alphanumeric())
        .map_or("", |at| &end[at..])
}

/// The glob for a part in a directory, with all below it.
fn whole(directory: &str, part: &str, below: bool) -> String {
    let directory = literal(directory);
    match (part, below) {
        ("*", true) => format!("{directory}**"),
        (_, true) => format!("{directory}{part}/**"),
        (_, false) => format!("{directory}{part}"),
    }
}

/// A glob for a name that stayed, if a part of it looks as if it would not.
fn look(name: &str, host: &Host, unsure: bool) -> Option<(String, Why)> {
    let (anchor, parts) = parts(name);
    let mut directory = anchor.to_owned();
    for (at, part) in parts.iter().enumerate() {
        if let Some((glob, look)) = generalise(part, host, anchor.is_empty(), unsure) {
            let below = at + 1 < parts.len();
            return Some((whole(&directory, &glob, below), Why::Looks(look)));
        }
        directory = format!("{directory}{part}/");
    }
    None
}

#[cfg(test)]
mod tests;
