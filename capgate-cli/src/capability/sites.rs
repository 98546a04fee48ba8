//! The places where a suite gates its units, found in the text of its files.
//!
//! Each has one of three forms, on one line and with everything written out, so that what is gated can be read and counted:
//!
//!     capgate capability require docker --unit test_images
//!     capability_require docker test_images
//!     @pytest.mark.capability("docker")
//!     def test_images():

/// One place in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Counted from 1.
    pub(super) line: usize,
    /// The unit and the capability; `None` when the call has none of the forms.
    pub(super) gate: Option<(String, String)>,
}

/// What gates a unit, in some form.
const FUNCTION: &str = "capability_require";
const MARKER: &str = "mark.capability";

/// Every place in the text of a file.
pub(super) fn find(text: &str) -> Vec<Site> {
    let lines: Vec<&str> = text.lines().collect();
    let mut sites = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim();
        if code.starts_with('#') || code.starts_with("//") {
            continue;
        }
        let gate = if has_word(code, MARKER) {
            marked(&lines, index)
        } else if has_word(code, FUNCTION) {
            called(code)
        } else if is_command(code) {
            commanded(code)
        } else {
            continue;
        };
        sites.push(Site {
            line: index + 1,
            gate,
        });
    }
    sites
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a text holds a word, and not only as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a text calls `capability require`, as a command or as a list of arguments.
fn is_command(text: &str) -> bool {
    text.match_indices("capability").any(|(at, word)| {
        let rest = &text[at + word.len()..];
        let after = rest.trim_start_matches(['"', '\'', ',', ' ', '\t']);
        let ends = after.strip_prefix("require");
        after.len() < rest.len() && ends.is_some_and(|ends| !ends.starts_with(is_word))
    })
}

/// A name or a unit that is written out.
fn literal(text: &str) -> Option<&str> {
    let bare = text.trim_matches('"');
    let plain = |c: char| is_word(c) || "-.:/".contains(c);
    (!bare.is_empty()
        && bare.chars().all(plain)
        && [bare.len(), bare.len() + 2].contains(&text.len()))
    .then_some(bare)
}

/// The words of a shell's command, without what follows it on the line.
fn words(code: &str) -> Vec<&str> {
    let end = code.find([';', '|', '&', '#']).unwrap_or(code.len());
    code[..end].split_whitespace().collect()
}

fn gate(unit: &str, capability: &str) -> Option<(String, String)> {
    Some((literal(unit)?.to_owned(), literal(capability)?.to_owned()))
}

fn called(code: &str) -> Option<(String, String)> {
    match *words(code) {
        [FUNCTION, capability, unit] => gate(unit, capability),
        _ => None,
    }
}

fn commanded(code: &str) -> Option<(String, String)> {
    match *words(code) {
        [program, "capability", "require", capability, "--unit", unit]
            if program == "capgate" || program.ends_with("/capgate") =>
        {
            gate(unit, capability)
        }
        _ => None,
    }
}

/// A marker on the line `index`, and the function that it stands above.
fn marked(lines: &[&str], index: usize) -> Option<(String, String)> {
    let line = lines.get(index)?;
    let inner = line
        .trim()
        .strip_prefix("@pytest.mark.capability(")?
        .strip_suffix(')')?;
    let quote = inner
        .chars()
        .next()
        .filter(|quote| "\"'".contains(*quote))?;
    let capability = inner.strip_prefix(quote)?.strip_suffix(quote)?;
    let indent = indent_of(line);
    let mut below = lines.get(index + 1..)?.iter().map(|line| line.trim());
    let named = below.find(|line| !line.starts_with(['@', '#']) && !line.is_empty())?;
    let named = named.strip_prefix("async ").unwrap_or(named);
    let function = named.strip_prefix("def ")?.split('(').next()?;
    let mut unit = function.to_owned();
    let mut inside = indent;
    for line in lines.get(..index)?.iter().rev() {
        if inside == 0 {
            break;
        }
        if line.trim().is_empty() || indent_of(line) >= inside {
            continue;
        }
        inside = indent_of(line);
        let class = line.trim().strip_prefix("class ")?;
        let class = class.split(['(', ':']).next()?;
        unit = format!("{class}::{unit}");
    }
    gate(&unit, capability)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `LINE unit capability` for each site, `LINE ?` for one of no form.
    fn check(text: &str, expect: &[&str]) {
        let got: Vec<String> = find(text)
            .iter()
            .map(|site| match &site.gate {
                Some((unit, capability)) => format!("{} {unit} {capability}", site.line),
                None => format!("{} ?", site.line),
            })
            .collect();
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn the_three_forms_are_found() {
        check(
            "#!/bin/sh\n  capgate capability require docker --unit test_a || exit\n/usr/bin/capgate capability require ipv6 --unit t.b\n",
            &["2 test_a docker", "3 t.b ipv6"],
        );
        check(
            ". ./capability.sh\ncapability_require docker test_a\n(capability_require docker test_b; run)\n",
            &["2 test_a docker", "3 ?"],
        );
        check(
            "@pytest.mark.capability(\"docker\")\n@pytest.mark.slow\ndef test_a(x):\n    pass\n\nclass TestB(Base):\n\n    @pytest.mark.capability('ipv6')\n    async def test_c(self):\n        pass\n",
            &["1 test_a docker", "8 TestB::test_c ipv6"],
        );
    }

    #[test]
    fn other_forms_of_the_same_are_told() {
        for line in [
            "capgate capability require \"$NAME\" --unit test_a",
            "capgate capability require docker --unit \"$0\"",
            "capgate capability require --unit test_a docker",
            "capgate capability require docker --unit test_a --root .",
            "if capgate capability require docker --unit test_a; then",
            "subprocess.run([\"capgate\", \"capability\", \"require\", name, \"--unit\", unit])",
            "capability_require docker",
            "capability_require() {",
            "pytestmark = pytest.mark.capability(\"docker\")",
            "@pytest.mark.capability(NAME)",
            "@pytest.mark.capability(\"docker\", \"ipv6\")",
            "@pytest.mark.capability(\"docker\")\nclass TestA:",
            "@mark.capability(\"docker\")\ndef test_a():",
        ] {
            check(line, &["1 ?"]);
        }
    }

    #[test]
    fn what_only_reads_alike_is_none() {
        check(
            "# capability_require docker test_a\n// capgate capability require docker --unit x\nmy_capability_require x y\nthe capability requires\n",
            &[],
        );
    }
}
