//! `refuse`: what a job may never reach, whatever else its contract allows.
//!
//! A refusal says what it is about: `exec:az`, `net:169.254.169.254:*`, `unix:/run/docker.sock`, `write:~/.ssh/**`. What a job did of it
//! is a *reach*, and is written the same way: `exec:/usr/bin/az`.

use std::{fmt, str::FromStr};

use crate::{
    address::NetEntry,
    glob::{GlobError, GlobPatterns},
    netpattern::{NetPattern, NetPatterns},
    pathform::{Forms, neutralise, unescape},
};

/// How a refusal of a program begins, and a reach of one.
pub const EXEC: &str = "exec:";
/// The same, of a network destination.
pub const NET: &str = "net:";
/// The same, of a unix socket; entries of the column `net` begin so as well.
pub const UNIX: &str = "unix:";
/// The same, of a name that is written.
pub const WRITE: &str = "write:";

/// What a glob's wildcards begin with.
const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

/// One member of `refuse`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    text: String,
    what: What,
}

/// What is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A program by the name of its file: a glob without a slash.
    Name(String),
    /// A program by its path: a glob over entries.
    Program(String),
    /// A destination.
    Net(NetPattern),
    /// A name in the file system: a glob over entries.
    Write(String),
}

impl Refusal {
    /// The refusal as its author wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the program that it refuses, when it says just that.
    pub fn program_name(&self) -> Option<&str> {
        match &self.what {
            What::Name(name) if !name.contains(WILDCARDS) => Some(name),
            _ => None,
        }
    }

    /// Whether it is about a program.
    pub fn is_program(&self) -> bool {
        matches!(self.what, What::Name(_) | What::Program(_))
    }

    /// The glob of names or programs that it holds, which may begin with a variable.
    pub fn glob(&self) -> Option<&str> {
        match &self.what {
            What::Program(glob) | What::Write(glob) => Some(glob),
            What::Name(_) | What::Net(_) => None,
        }
    }

    /// The destinations that it refuses.
    pub fn net(&self) -> Option<&NetPattern> {
        match &self.what {
            What::Net(pattern) => Some(pattern),
            _ => None,
        }
    }

    /// The same with another glob of names or programs.
    #[must_use]
    pub fn with_glob(&self, glob: String) -> Self {
        let what = match &self.what {
            What::Program(_) => What::Program(glob),
            What::Write(_) => What::Write(glob),
            other => other.clone(),
        };
        let text = self.text.clone();
        Self { text, what }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Refusal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let net = |text: &str| {
            let pattern = text.parse::<NetPattern>();
            pattern.map(What::Net).map_err(|error| error.problem)
        };
        let what = if let Some(program) = text.strip_prefix(EXEC) {
            if program.is_empty() {
                return Err("a program is expected after `exec:`".to_owned());
            }
            // No program's entry ends so: it would refuse nothing.
            if program.ends_with('/') {
                return Err(format!(
                    "`{}` is a directory, which is not executed; what lies in it is `{EXEC}{program}**`",
                    neutralise(program)
                ));
            }
            if program.contains('/') || program.starts_with("memfd:") {
                What::Program(program.to_owned())
            } else {
                What::Name(program.to_owned())
            }
        } else if let Some(destination) = text.strip_prefix(NET) {
            match net(destination)? {
                // It is never an entry: it would refuse nothing.
                What::Net(pattern) if pattern.is_own() => {
                    return Err(
                        "`self` cannot be refused; name the address and the port".to_owned()
                    );
                }
                what => what,
            }
        } else if text.starts_with(UNIX) {
            net(text)?
        } else if let Some(glob) = text.strip_prefix(WRITE) {
            // A directory's entry ends with a slash in the ledger, and without one where a single write of it is looked at.
            let name = glob
                .strip_suffix('/')
                .filter(|name| !name.is_empty() && !name.ends_with('/'));
            What::Write(name.unwrap_or(glob).to_owned())
        } else {
            return Err(
                "`exec:`, `net:`, `unix:` or `write:` is expected at the beginning".to_owned(),
            );
        };
        let text = text.to_owned();
        Ok(Self { text, what })
    }
}

/// Refusals made ready to match.
#[derive(Clone, Debug)]
pub struct Refusals {
    refusals: Vec<Refusal>,
    names: GlobPatterns,
    programs: GlobPatterns,
    net: NetPatterns,
    writes: GlobPatterns,
    /// Directories that everything refused for writing lies in: moving one moves what is in it.
    held: Vec<String>,
}

impl Refusals {
    /// Makes refusals ready; variables are resolved already.
    ///
    /// # Errors
    /// When a glob is malformed, can match nothing or matches everything; the number is the index of the refusal.
    pub fn new(refusals: Vec<Refusal>) -> Result<Self, GlobError> {
        fn select<'a, T>(
            refusals: &'a [Refusal],
            pick: impl Fn(&'a What) -> Option<T>,
        ) -> (Vec<T>, Vec<usize>) {
            let picked = refusals.iter().enumerate();
            picked
                .filter_map(|(index, refusal)| Some((pick(&refusal.what)?, index)))
                .unzip()
        }
        let own = |owners: Vec<usize>| {
            move |mut error: GlobError| {
                error.index = error.index.and_then(|index| owners.get(index).copied());
                error
            }
        };
        let globs = |pick: fn(&What) -> Option<String>| {
            let (globs, owners) = select(&refusals, pick);
            GlobPatterns::new(&globs).map_err(own(owners))
        };
        let names = globs(|what| match what {
            What::Name(glob) => Some(glob.clone()),
            _ => None,
        })?;
        let programs = globs(|what| match what {
            What::Program(glob) => Some(glob.clone()),
            _ => None,
        })?;
        let writes = globs(|what| match what {
            What::Write(glob) => Some(glob.clone()),
            _ => None,
        })?;
        let (net, owners) = select(&refusals, |what| match what {
            What::Net(pattern) => Some(pattern.clone()),
            _ => None,
        });
        let net = NetPatterns::new(&net).map_err(own(owners))?;
        let (held, _) = select(&refusals, |what| match what {
            What::Write(glob) => Some(literal_part(glob).0.to_owned()),
            _ => None,
        });
        Ok(Self {
            refusals,
            names,
            programs,
            net,
            writes,
            held,
        })
    }

    /// The same, and what the refused paths lead to when symbolic links in them are followed. `real` resolves an absolute path of
    /// something that exists.
    ///
    /// # Errors
    /// As [`Refusals::new`].
    pub fn followed(
        &self,
        forms: &Forms,
        real: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<Self, GlobError> {
        let mut all = self.refusals.clone();
        for refusal in &self.refusals {
            let what = match &refusal.what {
                What::Name(_) => None,
                // One program under many names, such as busybox, does what it is called for: there the name counts alone.
                What::Program(glob) => lead(glob, forms, real)
                    .filter(|lead| glob.contains(WILDCARDS) || name_of(lead) == name_of(glob))
                    .map(What::Program),
                What::Write(glob) => lead(glob, forms, real).map(What::Write),
                What::Net(pattern) => pattern
                    .unix_path()
                    .and_then(|glob| lead(glob, forms, real))
                    .and_then(|glob| {
                        let anchor = if glob.starts_with(['/', '~']) {
                            ""
                        } else {
                            "./"
                        };
                        format!("{UNIX}{anchor}{glob}").parse().ok()
                    })
                    .map(What::Net),
            };
            let text = refusal.text.clone();
            all.extend(what.map(|what| Refusal { text, what }));
        }
        Self::new(all)
    }

    /// Whether anything is refused.
    pub fn is_empty(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether any program is refused.
    pub fn has_programs(&self) -> bool {
        self.refusals.iter().any(Refusal::is_program)
    }

    /// Names of refused programs, to be looked for in `PATH`.
    pub fn program_names(&self) -> impl Iterator<Item = &str> {
        self.refusals.iter().filter_map(Refusal::program_name)
    }

    /// Paths of refused programs, as entries; those that are globs are left out.
    pub fn program_paths(&self) -> impl Iterator<Item = &str> {
        self.refusals.iter().filter_map(|refusal| {
            let What::Program(glob) = &refusal.what else {
                return None;
            };
            (!glob.contains(WILDCARDS)).then_some(glob.as_str())
        })
    }

    /// Whether a program is refused, by its path or by the name of its file.
    pub fn program(&self, entry: &str) -> bool {
        self.names.matches(name_of(entry)) || self.programs.matches(entry)
    }

    /// Whether a destination is refused. Asking for a name reaches nothing, unless that is what is refused (`net:dns:NAME`).
    pub fn destination(&self, entry: &NetEntry) -> bool {
        let patterns = self.net.patterns();
        self.net.matching(entry).into_iter().any(|index| {
            !matches!(entry, NetEntry::Lookup(_))
                || patterns
                    .get(index)
                    .is_some_and(|pattern| pattern.text().starts_with("dns:"))
        })
    }

    /// Whether anything is refused to be written.
    pub fn has_writes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether writing a name is refused.
    pub fn write(&self, entry: &str) -> bool {
        self.writes.matches(entry)
    }

    /// Whether moving a name, with what may be below it, is refused.
    pub fn displace(&self, entry: &str) -> bool {
        let holds = |held: &String| {
            held.strip_prefix(entry)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.write(entry) || self.held.iter().any(holds)
    }
}

/// The last name of an entry.
fn name_of(entry: &str) -> &str {
    entry.rsplit('/').next().unwrap_or(entry)
}

/// A glob's beginning without wildcards, up to a slash, and what follows behind that slash. All of it, when it has none.
fn literal_part(glob: &str) -> (&str, Option<&str>) {
    match glob.find(WILDCARDS) {
        None => (glob, None),
        Some(wildcard) => match glob[..wildcard].rfind('/') {
            // Of `/*` the slash is the directory.
            Some(0) => ("/", Some(&glob[1..])),
            Some(slash) => (&glob[..slash], Some(&glob[slash + 1..])),
            None => ("", Some(glob)),
        },
    }
}

/// The glob that a glob becomes when symbolic links on the way are followed; `None` when it stays as it is.
fn lead(glob: &str, forms: &Forms, real: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<String> {
    let entry = |path: &[u8]| Some(globset::escape(&forms.form(path, &|_| false)?.entry));
    let (literal, rest) = literal_part(glob);
    let path = forms.path_of(literal)?;
    let lead = match rest {
        Some(rest) => format!("{}/{rest}", entry(&real(&path)?)?.trim_end_matches('/')),
        None => match real(&path) {
            Some(path) => entry(&path)?,
            // Nothing is there yet: its directory may be.
            None => {
                let slash = path.iter().rposition(|&byte| byte == b'/')?;
                let mut found = real(&path[..slash.max(1)])?;
                if found != b"/" {
                    found.push(b'/');
                }
                found.extend_from_slice(&path[slash + 1..]);
                entry(&found)?
            }
        },
    };
    (lead != glob).then_some(lead)
}

impl Forms {
    /// The path behind the text of an entry, or of a beginning of one; `None` when it has none of its own.
    pub fn path_of(&self, entry: &str) -> Option<Vec<u8>> {
        let below = |directory: &[u8], rest: &str| {
            let mut path = directory.to_vec();
            path.extend(unescape(rest)?);
            Some(path)
        };
        if entry == "~" || entry.starts_with("~/") {
            return below(self.home()?, &entry[1..]);
        }
        if let Some(rest) = entry.strip_prefix("/run/user/$UID") {
            return below(self.run_user(), rest);
        }
        if entry.starts_with('/') {
            return below(b"", entry);
        }
        match entry.strip_prefix("./").unwrap_or(entry) {
            "" | "." => Some(self.root().to_vec()),
            entry => below(self.root(), &format!("/{entry}")),
        }
    }
}

#[cfg(test)]
mod tests;
