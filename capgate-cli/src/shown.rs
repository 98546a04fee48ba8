//! Text from outside made fit for a terminal and for a runner's log.

use std::{os::unix::ffi::OsStrExt, path::Path};

use capgate_common::pathform::{escape, neutralise};

/// A path as a message shows it: no byte of it can move the cursor or imitate another name.
pub(crate) fn shown(path: impl AsRef<Path>) -> String {
    harmless(&escape(path.as_ref().as_os_str().as_bytes()))
}

/// Text without control characters and the like, and without what runners take for a command anywhere in a line of
/// their log: `##[command]`, `##vso[command]`, `##teamcity[command]`. (`::command::` is one only at the beginning of a line,
/// which is always ours.)
pub(crate) fn harmless(text: &str) -> String {
    neutralise(text).replace("##", "#\\x23")
}

/// Text as one word of a POSIX shell's command line: made harmless, and in quotes unless it is plain.
pub(crate) fn shell_word(text: &str) -> String {
    let text = harmless(text);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_./:@%+,-".contains(it);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    // Nothing means anything in there but the closing quote.
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// JSON in ASCII alone, without the runners' commands: no character of it can fool a terminal, and a program reads the same
/// strings.
pub(crate) fn harmless_json(json: &str) -> String {
    use std::fmt::Write as _;

    let mut text = String::with_capacity(json.len());
    // Outside of strings JSON is printable ASCII and white space and has no `#`: what is replaced stands in a string.
    for character in json.replace("##", "#\\u0023").chars() {
        if character.is_ascii() && character != '\x7f' {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{harmless, harmless_json, shell_word, shown};

    #[test]
    fn nothing_moves_the_cursor_or_commands_a_runner() {
        assert_eq!(shown("a\u{1b}[2J\n"), r"a\x1b[2J\x0a");
        assert_eq!(harmless("##[add-mask]x"), r"#\x23[add-mask]x");
        assert_eq!(harmless("###[x"), r"#\x23#[x");
        assert_eq!(harmless("a\u{202e}b\u{85}"), r"a\u{202e}b\u{85}");
    }

    #[test]
    fn a_shell_takes_a_word_for_what_is_shown() {
        for (name, word) in [
            ("a/b-c_d.e:1", "a/b-c_d.e:1"),
            ("~/x", "'~/x'"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(shell_word(name), word);
        }
        for name in [
            "$(touch pwned) `id` ; rm -rf / & | > x",
            "!history \\ \"double\" 'single' '' $'x' # * ? [a] {b,c}",
            "new\nline \u{1b}[2J \u{202e} \u{9b}31m ##[x] é",
            "-n",
            "=x",
            "\\",
        ] {
            let said = Command::new("sh")
                .args(["-c", &format!("printf %s {}", shell_word(name))])
                .output()
                .expect("sh");
            // What begins with a dash, printf takes for its own; the word is the same.
            assert_eq!(String::from_utf8_lossy(&said.stdout), harmless(name));
        }
    }

    #[test]
    fn json_keeps_its_strings() {
        let text = "a ##[x] \u{7f}\u{9b}\u{1f600} ü\n";
        let json = serde_json::to_string(text).expect("a string");
        let shown = harmless_json(&json);
        assert!(shown.chars().all(|it| (' '..='~').contains(&it)) && !shown.contains("##"));
        let back: String = serde_json::from_str(&shown).expect("still JSON");
        assert_eq!(back, text);
    }
}
