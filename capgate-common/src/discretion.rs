//! How much of command lines is kept: decided once, before anything of them is stored or shown.
//!
//! Beside what a command line itself gives away ([`crate::scrub`]), the values of the environment's variables with telling names are
//! masked wherever they stand in it. They are held in memory only: nothing here can be serialised, and `Debug` shows none of it.

use std::fmt;

use serde::Deserialize;

use crate::{
    pathform::escape,
    scrub::{MASK, bounded, is_secret_variable, scrub},
};

/// The shortest value that is masked, in bytes: `1`, `true` and `none` are values of such variables too, and no secrets.
pub const SHORTEST: usize = 6;

/// What an operator allows to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Argv {
    /// Every argument, without what looks like a secret.
    #[default]
    Scrubbed,
    /// The first word, scrubbed, and how many arguments followed.
    Names,
    /// Every argument as it is.
    Full,
}

/// What is kept of command lines, and what must not be.
#[derive(Clone, Default)]
pub struct Discretion {
    argv: Argv,
    /// Longest first, so that of two values of which one holds the other nothing stays.
    secrets: Vec<String>,
}

impl fmt::Debug for Discretion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Discretion({:?}, {} secrets)",
            self.argv,
            self.secrets.len()
        )
    }
}

impl Discretion {
    /// For the commands of a job that begins with this environment: `NAME=value`, a NUL after each, as `/proc/PID/environ` has it.
    pub fn new(argv: Argv, environ: &[u8]) -> Self {
        let mut secrets = Vec::new();
        for variable in environ.split(|&byte| byte == 0) {
            let Some(sign) = variable.iter().position(|&byte| byte == b'=') else {
                continue;
            };
            let (name, value) = (&variable[..sign], &variable[sign + 1..]);
            if !std::str::from_utf8(name).is_ok_and(is_secret_variable) {
                continue;
            }
            // A key of several lines is used line by line as well.
            let lines = value.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
            for value in lines.chain([value]) {
                if value.len() >= SHORTEST {
                    // In both forms that arguments come in.
                    secrets.extend([escape(value), String::from_utf8_lossy(value).into_owned()]);
                }
            }
        }
        secrets.sort_unstable_by(|one, other| {
            other.len().cmp(&one.len()).then_with(|| one.cmp(other))
        });
        secrets.dedup();
        Self { argv, secrets }
    }

    /// What is kept of a command line. Bounded in any case.
    pub fn keep(&self, argv: &[String]) -> Vec<String> {
        let masked = |argv: &[String]| -> Vec<String> {
            let masked: Vec<String> = argv.iter().map(|arg| self.mask(arg)).collect();
            scrub(&masked)
        };
        match self.argv {
            Argv::Full => bounded(argv),
            Argv::Scrubbed => masked(argv),
            Argv::Names => {
                let mut kept = masked(argv.get(..1).unwrap_or_default());
                if argv.len() > 1 {
                    kept.push(format!("… {} more", argv.len() - 1));
                }
                kept
            }
        }
    }

    /// What is kept of a text that is no command line, such as a label.
    pub fn keep_text(&self, text: &str) -> String {
        match self.argv {
            Argv::Full => text.to_owned(),
            Argv::Scrubbed | Argv::Names => self.mask(text),
        }
    }

    fn mask(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
        }
        // An argument that was cut may end in the middle of a value.
        let end = text.trim_end_matches('…').len();
        let start = self.secrets.iter().find_map(|secret| {
            (SHORTEST..secret.len())
                .rev()
                .filter(|&length| secret.is_char_boundary(length))
                .find(|&length| text[..end].ends_with(&secret[..length]))
                .map(|length| end - length)
        });
        if let Some(start) = start {
            text.replace_range(start..end, MASK);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Argv, Discretion};
    use crate::scrub::{MASK, MAX_ARGS};

    const ENVIRON: &[u8] = b"DEPLOY_TOKEN=correct-horse\0HOME=/home/u\0PWD=/home/u/repository\0EMPTY_SECRET=\0\
        API_KEY=1\0DB_PASSWORD=a\\b 'c' \xff\0SIGNING_KEY=first line\nsecond line\n\0LONGER_TOKEN=correct-horse-battery\0\
        SSH_AUTH_SOCK=/tmp/agent\0KEY_FILE=/etc/keys\0NO_VALUE";

    fn check(argv: Argv, given: &[&str], expect: &[&str]) {
        let given: Vec<String> = given.iter().map(|&arg| arg.to_owned()).collect();
        assert_eq!(Discretion::new(argv, ENVIRON).keep(&given), expect);
    }

    #[test]
    fn values_of_telling_variables_are_masked_wherever_they_stand() {
        let check = |given, expect| check(Argv::Scrubbed, given, expect);
        check(&["x", "correct-horse"], &["x", MASK]);
        check(&["x", "--as=correct-horse,y"], &["x", "--as=***,y"]);
        check(&["correct-horse-battery"], &[MASK]);
        // As they are, and as an entry writes them.
        check(&["a\\b 'c' \u{fffd}"], &[MASK]);
        check(&["a\\\\b 'c' \\xff"], &[MASK]);
        check(&["-d", "second line"], &["-d", MASK]);
        // Cut in the middle.
        check(&["x correct-ho"], &["x ***"]);
        check(&["x correct-ho…"], &["x ***…"]);
        // What says nothing, is short, or only says where a secret is.
        check(
            &[
                "1",
                "/home/u",
                "/home/u/repository",
                "/tmp/agent",
                "/etc/keys",
                "corr",
            ],
            &[
                "1",
                "/home/u",
                "/home/u/repository",
                "/tmp/agent",
                "/etc/keys",
                "corr",
            ],
        );
    }

    #[test]
    fn an_operator_may_keep_less_or_all() {
        let given = ["/bin/x", "correct-horse", "--password=a"];
        check(Argv::Scrubbed, &given, &["/bin/x", MASK, "--password=***"]);
        check(Argv::Names, &given, &["/bin/x", "… 2 more"]);
        check(Argv::Names, &["correct-horse"], &[MASK]);
        check(Argv::Names, &[], &[]);
        check(Argv::Full, &given, &given);
        // Never without bounds.
        let many = vec!["a".repeat(1 << 16); MAX_ARGS + 1];
        let kept = Discretion::new(Argv::Full, b"").keep(&many);
        assert!(kept.len() == MAX_ARGS + 1 && kept.iter().all(|arg| arg.len() < 1100));
    }

    #[test]
    fn nothing_of_a_value_is_shown() {
        let shown = format!("{:?}", Discretion::new(Argv::Scrubbed, ENVIRON));
        assert_eq!(shown, "Discretion(Scrubbed, 8 secrets)");
    }
}
