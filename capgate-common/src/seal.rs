//! `seal_env`: environment variables that a job does not get, by name or by the beginning of it.
//!
//! An entry of an environment is `NAME=value` and nothing promises that: the kernel hands on any bytes. What stands before the first
//! `=` is taken for the name, all of it where there is none.

use std::{fmt, str::FromStr};

use serde::Deserialize;

use crate::pathform::neutralise;

/// What no pattern may match: without it a job finds no programs, or other ones.
const KEPT: &str = "PATH";
/// Largest list of patterns that is read from a file of its own, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// One pattern of `seal_env`: a name, or the beginning of names with a `*` behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvPattern(String);

impl EnvPattern {
    /// The pattern as its author wrote it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it matches a variable's name.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning.as_bytes()),
            None => name == self.0.as_bytes(),
        }
    }
}

impl fmt::Display for EnvPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EnvPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = Self(text.to_owned());
        let beginning = text.strip_suffix('*').unwrap_or(text);
        if text.is_empty() {
            return Err("an empty pattern".to_owned());
        }
        if beginning.contains(['*', '=']) || beginning.chars().any(char::is_control) {
            return Err(format!(
                "a name such as `KUBECONFIG`, or a beginning such as `AWS_*`, is expected, not `{text}`"
            ));
        }
        if beginning.is_empty() {
            return Err(format!(
                "`{text}` would drop the whole environment; name variables, or their beginning"
            ));
        }
        if pattern.matches(KEPT.as_bytes()) {
            return Err(format!(
                "`{text}` would drop `{KEPT}`, without which a job finds no programs; name variables, or a longer beginning"
            ));
        }
        Ok(pattern)
    }
}

/// The name of an entry of an environment.
pub fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// Whether any of the patterns takes an entry out of an environment. One without a name stays.
pub fn is_sealed(patterns: &[EnvPattern], entry: &[u8]) -> bool {
    let name = name_of(entry);
    !name.is_empty() && patterns.iter().any(|pattern| pattern.matches(name))
}

/// A list of patterns that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Not a JSON object with `seal_env` and nothing else.
    #[error("not a JSON object with the one key `seal_env`: {}", neutralise(.0))]
    Malformed(String),
    /// A pattern that is refused.
    #[error("`seal_env`[{index}]: {}", neutralise(.problem))]
    Pattern {
        /// Which, counted from 0.
        index: usize,
        /// What is wrong.
        problem: String,
    },
}

/// Reads a list of patterns from a file of its own: `{ "seal_env": ["AWS_*"] }`, as it would stand in a contract.
///
/// # Errors
/// When the file holds anything else, or a pattern that is refused.
pub fn list(bytes: &[u8]) -> Result<Vec<EnvPattern>, ListError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct List {
        seal_env: Vec<String>,
    }

    // serde takes a list of its values for a struct as well.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ListError::Malformed("a list".to_owned()));
    }
    let List { seal_env } =
        serde_json::from_slice(bytes).map_err(|error| ListError::Malformed(error.to_string()))?;
    let patterns = seal_env.iter().enumerate();
    patterns
        .map(|(index, text)| {
            text.parse()
                .map_err(|problem| ListError::Pattern { index, problem })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{EnvPattern, is_sealed, list};

    fn check(patterns: &[&str], entry: &[u8], expect: bool) {
        let patterns: Vec<EnvPattern> = patterns
            .iter()
            .map(|text| text.parse().expect("a pattern"))
            .collect();
        assert_eq!(is_sealed(&patterns, entry), expect, "{entry:?}");
    }

    #[test]
    fn names_and_beginnings_take_entries_out() {
        check(&["AWS_*"], b"AWS_PROFILE=x", true);
        check(&["AWS_*"], b"AWS_=x", true);
        check(&["AWS_*"], b"AWS=x", false);
        check(&["AWS_*"], b"XAWS_A=x", false);
        check(&["KUBECONFIG"], b"KUBECONFIG=/a", true);
        check(&["KUBECONFIG"], b"KUBECONFIG=", true);
        check(&["KUBECONFIG"], b"KUBECONFIGS=/a", false);
        check(&["KUBECONFIG"], b"kubeconfig=/a", false);
        check(&["A", "B"], b"B=1", true);
        check(&[], b"A=1", false);
    }

    #[test]
    fn entries_may_be_any_bytes() {
        check(&["AWS_*"], b"AWS_\xff=\xfe", true);
        check(&["AWS_*"], b"AWS_KEY", true);
        check(&["A"], b"A=b=c", true);
        check(&["A"], b"=A=b", false);
        check(&["A*"], b"", false);
    }

    #[test]
    fn what_would_drop_path_or_everything_is_refused() {
        for text in ["", "*", "P*", "PATH*", "PATH"] {
            assert!(text.parse::<EnvPattern>().is_err(), "{text}");
        }
        for text in ["A*B", "**", "A=", "A\n", "*A"] {
            assert!(text.parse::<EnvPattern>().is_err(), "{text}");
        }
        for text in ["PATHS", "PATH_*", "PAT", "Q*", "_"] {
            assert!(text.parse::<EnvPattern>().is_ok(), "{text}");
        }
    }

    #[test]
    fn a_list_of_its_own_holds_nothing_else() {
        let texts = |bytes: &[u8]| {
            let patterns = list(bytes).map_err(|error| error.to_string())?;
            Ok::<_, String>(patterns.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            texts(br#"{"seal_env": ["AWS_*", "X"]}"#),
            Ok(vec!["AWS_*".to_owned(), "X".to_owned()])
        );
        for bytes in [
            &b"AWS_*\n"[..],
            b"{}",
            br#"{"seal_env": [], "refuse": []}"#,
            br#"{"seal_env": [], "seal_env": []}"#,
            br#"{"seal_env": "AWS_*"}"#,
            br#" [["AWS_*"]]"#,
        ] {
            assert!(
                texts(bytes)
                    .unwrap_err()
                    .starts_with("not a JSON object with the one key"),
                "{bytes:?}"
            );
        }
        assert_eq!(
            texts(br#"{"seal_env": ["A", "P*"]}"#).unwrap_err(),
            "`seal_env`[1]: `P*` would drop `PATH`, without which a job finds no programs; name variables, or a longer beginning"
        );
    }
}
