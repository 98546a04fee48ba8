//! How a path is written as a ledger entry: escaping, and the forms of the design's section 6.
//!
//! Entries must not depend on the runner (its checkout directory, user name, uid, pids), and no name may imitate
//! another one. Both are kept here and nowhere else: [`escape`] makes bytes into text, [`Forms::form`] chooses how
//! the path begins. `docs/ledger-format.md` is the normative description.
//!
//! Invariant: two different paths never have the same entry, but for `/proc/PID` of the job's own processes, which
//! are written alike on purpose.

use std::fmt::Write as _;

/// Bytes as entry text: bytes below 0x20, 0x7f and bytes that are not valid UTF-8 become `\xNN` (lower case), a
/// backslash becomes `\\`, everything else stays.
///
/// Injective: different bytes give different text.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\0'..='\x1f' | '\x7f' => push_hex(&mut text, character as u32),
                _ => text.push(character),
            }
        }
        for &byte in chunk.invalid() {
            push_hex(&mut text, u32::from(byte));
        }
    }
    text
}

fn push_hex(text: &mut String, value: u32) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\\x{value:02x}");
}

/// The bytes behind a text that [`escape`] made; `None` for a text that it cannot have made.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => {
                bytes.push(b'\\');
                tail
            }
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                tail
            }
            (b'\\', _) => return None,
            _ => {
                bytes.push(first);
                tail
            }
        };
    }
    (escape(&bytes) == text).then_some(bytes)
}

/// Text made safe to show on a terminal or a page: control characters (C0, DEL, C1), line separators,
/// bidirectional marks and characters without a width become `\xNN` or `\u{NNNN}`.
///
/// For display only. Entries are stored and compared as [`escape`] wrote them; their C0 characters and backslashes are
/// escaped already and pass unchanged.
pub fn neutralise(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if !deceives(character) {
            shown.push(character);
        } else if character <= '\x7f' {
            push_hex(&mut shown, character as u32);
        } else {
            let _ = write!(shown, "\\u{{{:x}}}", character as u32);
        }
    }
    shown
}

/// Whether a character could move the cursor, change the order of what is read, or hide.
fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' // soft hyphen
            | '\u{34f}' // grapheme joiner
            | '\u{61c}' // Arabic letter mark
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // fillers that show nothing
            | '\u{17b4}' | '\u{17b5}' // inherent vowels that show nothing
            | '\u{180b}'..='\u{180f}' // Mongolian separators
            | '\u{200b}'..='\u{200f}' // zero width, direction marks
            | '\u{2028}'..='\u{202e}' // line separators, embeddings and overrides
            | '\u{2060}'..='\u{206f}' // word joiner, isolates, deprecated format characters
            | '\u{fe00}'..='\u{fe0f}' // variation selectors
            | '\u{feff}' // byte order mark
            | '\u{fff9}'..='\u{fffb}' // interlinear annotation
            | '\u{fffe}' | '\u{ffff}' // no characters: a document that holds one is no XML
            | '\u{e0000}'..='\u{e0fff}' // tags, more variation selectors
        )
}

/// Where a path lies, which decides how its entry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Inside the job's root directory, or the root itself: relative.
    Root,
    /// Inside the user's home: `~/…`.
    Home,
    /// Inside the user's runtime directory: `/run/user/$UID/…`.
    RunUser,
    /// In `/proc` of one of the job's own processes: `/proc/self/…`.
    ProcSelf,
    /// Anywhere else: absolute.
    Other,
}

/// A path as an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Form {
    /// The escaped text.
    pub entry: String,
    /// Where the path lies.
    pub place: Place,
}

impl Form {
    /// The entry of this path as a directory: `d/`.
    pub fn directory(&self) -> String {
        if self.entry == "/" {
            return self.entry.clone();
        }
        format!("{}/", self.entry)
    }

    /// The entry that stands for names in this directory which cannot be told one by one: `d/*`, and `*` in the root.
    pub fn anything_in(&self) -> String {
        match self.entry.as_str() {
            "." => "*".to_owned(),
            "/" => "/*".to_owned(),
            entry => format!("{entry}/*"),
        }
    }
}

/// A directory that cannot anchor a form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the root directory `{0}` is not an absolute path without `.`, `..` and `//`")]
pub struct RootError(String);

/// What the forms of one job are relative to.
#[derive(Clone, Debug)]
pub struct Forms {
    root: Vec<u8>,
    home: Option<Vec<u8>>,
    run_user: Vec<u8>,
}

impl Forms {
    /// `root` is the job's root directory and `home` the user's home by passwd, both as the kernel names them (symbolic links
    /// resolved). A home that is no absolute path, or is `/` (users without a home), is none.
    ///
    /// # Errors
    /// When `root` is not an absolute, normal path.
    pub fn new(root: &[u8], home: Option<&[u8]>, uid: u32) -> Result<Self, RootError> {
        let trimmed = trim_slashes(root);
        if components(trimmed).is_none() {
            return Err(RootError(escape(root)));
        }
        let home = home
            .map(trim_slashes)
            .filter(|home| components(home).is_some_and(|parts| !parts.is_empty()));
        Ok(Self {
            root: trimmed.to_vec(),
            home: home.map(<[u8]>::to_vec),
            run_user: format!("/run/user/{uid}").into_bytes(),
        })
    }

    /// The root directory, without a trailing slash (but `/` itself).
    pub fn root(&self) -> &[u8] {
        &self.root
    }

    /// The user's home, if it is known.
    pub(crate) fn home(&self) -> Option<&[u8]> {
        self.home.as_deref()
    }

    /// The user's runtime directory.
    pub(crate) fn run_user(&self) -> &[u8] {
        &self.run_user
    }

    /// The form of an absolute path. `is_own_pid` says whether a process id of the path's `/proc` is (or was) one of the job's own
    /// processes. `None` when the path is not absolute or holds `.`, `..` or an empty component: such a path was not resolved, and
    /// writing it down would make up a name.
    pub fn form(&self, path: &[u8], is_own_pid: &dyn Fn(u32) -> bool) -> Option<Form> {
        components(path)?;
        if let Some(rest) = inside(path, &self.root) {
            return self.in_root(rest);
        }
        if let Some(rest) = self.home.as_deref().and_then(|home| inside(path, home)) {
            return Some(anchored("~", rest, Place::Home));
        }
        if let Some(rest) = inside(path, &self.run_user) {
            return Some(anchored("/run/user/$UID", rest, Place::RunUser));
        }
        if let Some(rest) = inside(path, b"/proc")
            && let Some(form) = in_proc(rest, is_own_pid)
        {
            return Some(form);
        }
        Some(Form {
            entry: absolute(path),
            place: Place::Other,
        })
    }

    /// The form of a path known by identity to lie inside the root, relative to it; empty for the root itself. `None` when it
    /// starts with a slash or holds `.`, `..` or an empty component.
    pub fn in_root(&self, relative: &[u8]) -> Option<Form> {
        let place = Place::Root;
        if relative.is_empty() {
            let entry = ".".to_owned();
            return Some(Form { entry, place });
        }
        if relative.split(|&byte| byte == b'/').any(abnormal) {
            return None;
        }
        let mut entry = names(relative);
        // Names that would read as another form lose their first byte to an escape.
        if entry == "~" || entry.starts_with("~/") {
            entry.replace_range(..1, "\\x7e");
        } else if entry.starts_with("memfd:") {
            entry.replace_range(..1, "\\x6d");
        }
        Some(Form { entry, place })
    }

    /// Whether `path` is the root directory or one of its ancestors.
    pub fn holds_root(&self, path: &[u8]) -> bool {
        path.starts_with(b"/") && inside(&self.root, trim_slashes(path)).is_some()
    }
}

/// The form below `/proc`, when it begins with an own process: `rest` is what follows `/proc/`.
fn in_proc(rest: &[u8], is_own_pid: &dyn Fn(u32) -> bool) -> Option<Form> {
    let (pid, rest) = split_component(rest);
    // Kernel paths never hold `self`, which is a symbolic link; it can come from an unresolved name and means the same.
    if pid != b"self" && !is_own_pid(number(pid)?) {
        return None;
    }
    let (task, below) = split_component(rest);
    let (tid, below) = split_component(below);
    if task == b"task" && number(tid).is_some() {
        // Thread ids move from run to run like pids. `$TID` imitates nothing: procfs has no such name.
        return Some(anchored("/proc/self/task/$TID", below, Place::ProcSelf));
    }
    Some(anchored("/proc/self", rest, Place::ProcSelf))
}

fn anchored(anchor: &str, rest: &[u8], place: Place) -> Form {
    let entry = if rest.is_empty() {
        anchor.to_owned()
    } else {
        format!("{anchor}/{}", names(rest))
    };
    Form { entry, place }
}

/// An absolute path as text. A directory that is really called `$UID` must not read as the runtime directory.
fn absolute(path: &[u8]) -> String {
    let text = names(path);
    match text.strip_prefix("/run/user/$UID") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            format!("/run/user/\\x24UID{rest}")
        }
        _ => text,
    }
}

/// Path text with each name escaped. A name that is just `*` is written `\x2a`, since `d/*` stands for "some name in d".
fn names(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for (index, name) in path.split(|&byte| byte == b'/').enumerate() {
        if index > 0 {
            text.push('/');
        }
        if name == b"*" {
            text.push_str("\\x2a");
        } else {
            text.push_str(&escape(name));
        }
    }
    text
}

/// What follows `directory` in `path`, without the slash between them; empty when they are the same.
fn inside<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => Some(&rest[1..]),
        // Only `/` itself ends with a slash.
        Some(_) if directory.ends_with(b"/") => Some(rest),
        Some(_) => None,
    }
}

pub(crate) fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/');
    match end {
        Some(end) => &path[..=end],
        None => &path[..path.len().min(1)],
    }
}

/// The names of an absolute path; `None` when it is not absolute and normal.
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let rest = path.strip_prefix(b"/")?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let names: Vec<&[u8]> = rest.split(|&byte| byte == b'/').collect();
    (!names.iter().copied().any(abnormal)).then_some(names)
}

fn abnormal(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..")
}

fn split_component(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, &[]),
    }
}

/// A process id as procfs writes it: digits without leading zeros.
fn number(digits: &[u8]) -> Option<u32> {
    if !digits.first()?.is_ascii_digit() || digits.starts_with(b"0") {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
