//! What a part of a name looks like: something that is another one tomorrow, or on another machine.

/// Whose machine it is, and who runs there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// The machine's name.
    pub(crate) name: String,
    /// The user's name.
    pub(crate) user: String,
    /// The user's number.
    pub(crate) uid: u32,
}

/// What something looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    /// A day: `2026-11-29`, `20261129`.
    Date,
    /// A UUID.
    Uuid,
    /// The machine's name.
    Host,
    /// The user's name.
    User,
    /// The user's number.
    Uid,
    /// Digits that may be a process id or a time.
    Number,
    /// Random letters and digits.
    Random,
}

impl Look {
    /// A phrase for it.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Self::Date => "looks like a date",
            Self::Uuid => "looks like a UUID",
            Self::Host => "has the machine's name",
            Self::User => "has the user's name",
            Self::Uid => "has the user's number",
            Self::Number => "looks like a process id or a time",
            Self::Random => "looks random",
        }
    }
}

/// Where a pattern stands for anything.
const STAR: &str = "*";
/// Digits of the shortest number that is taken for a process id or a time.
const NUMBER: usize = 4;
/// Length of the shortest run of letters and digits that is taken for random.
const RANDOM: usize = 8;

/// A component with what looks like something replaced by `*`, and what that was; `None` when nothing does.
///
/// `unsure` also takes what may as well be a name that stays: numbers and what looks random.
pub(crate) fn generalise(
    component: &str,
    host: &Host,
    in_root: bool,
    unsure: bool,
) -> Option<(String, Look)> {
    // A directory `build` in a repository is not there because the machine is called so.
    if in_root && component == host.name {
        return None;
    }
    let mut found = None;
    let mut glob = String::new();
    let mut rest = component;
    while !rest.is_empty() {
        let at_word = glob.is_empty() || glob.ends_with(|it: char| !it.is_ascii_alphanumeric());
        let hit = at_word
            .then(|| look_at(rest, host, in_root, unsure))
            .flatten();
        let (taken, look) = match hit {
            Some((length, look)) => (length, Some(look)),
            None => (rest.chars().next().map_or(1, char::len_utf8), None),
        };
        let (head, tail) = rest.split_at(taken);
        match look {
            Some(look) => {
                found = found.or(Some(look));
                glob.push_str(STAR);
            }
            None => glob.push_str(&capgate_common::glob::literal(head)),
        }
        rest = tail;
    }
    Some((merge_stars(&glob), found?))
}

/// What a text begins with: how many bytes of it, and what they look like.
fn look_at(text: &str, host: &Host, in_root: bool, unsure: bool) -> Option<(usize, Look)> {
    let is_word = |it: char| it.is_ascii_alphanumeric();
    let ends_at = |length: usize| {
        text.get(length..)
            .is_some_and(|rest| !rest.starts_with(is_word))
    };
    let begins_with = |name: &str, least: usize| {
        name.len() >= least && text.starts_with(name) && ends_at(name.len())
    };
    if let Some(length) = uuid(text).filter(|&length| ends_at(length)) {
        return Some((length, Look::Uuid));
    }
    if let Some(length) = date(text) {
        return Some((length, Look::Date));
    }
    if host.name != "localhost" && begins_with(&host.name, 2) {
        return Some((host.name.len(), Look::Host));
    }
    // Inside a repository a name such as `root` is more often a name of its own.
    if !in_root {
        if begins_with(&host.user, 3) {
            return Some((host.user.len(), Look::User));
        }
        let uid = host.uid.to_string();
        if host.uid >= 1000 && begins_with(&uid, 4) {
            return Some((uid.len(), Look::Uid));
        }
    }
    if !unsure {
        return None;
    }
    let word = text.find(|it| !is_word(it)).unwrap_or(text.len());
    let (digits, letters) = text[..word]
        .bytes()
        .partition::<Vec<u8>, _>(u8::is_ascii_digit);
    if letters.is_empty() && digits.len() >= NUMBER {
        return Some((word, Look::Number));
    }
    let process = text.strip_prefix("pid").map_or(0, |rest| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    if process > 0 && ends_at(3 + process) {
        return Some((3 + process, Look::Number));
    }
    let capitals = text.as_bytes()[..word]
        .windows(2)
        .filter(|pair| pair.iter().all(u8::is_ascii_uppercase))
        .count();
    let mixed = digits.len() >= 2 && !letters.is_empty() || !digits.is_empty() && capitals >= 2;
    (word >= RANDOM && mixed).then_some((word, Look::Random))
}

/// Whether all of a text looks as if it would be another one.
pub(crate) fn is_random(text: &str) -> bool {
    let nobody = Host::default();
    let word = text.trim_start_matches(|it: char| !it.is_ascii_alphanumeric());
    look_at(word, &nobody, true, true).is_some_and(|(length, _)| length == word.len())
}

/// The length of a UUID at the beginning.
fn uuid(text: &str) -> Option<usize> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut length = 0;
    for (index, group) in GROUPS.into_iter().enumerate() {
        if index > 0 {
            length += usize::from(text.as_bytes().get(length) == Some(&b'-'));
        }
        let digits = text.as_bytes().get(length..length + group)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        length += group;
    }
    // Without dashes it is any hash, which may well stay.
    (length == 36).then_some(length)
}

/// The length of a date at the beginning, with the time that follows it without a separator of words.
fn date(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let number = |from: usize, length: usize| -> Option<u32> {
        let digits = text.get(from..from + length)?;
        digits
            .bytes()
            .all(|it| it.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let dashed = matches!(bytes.get(4), Some(b'-' | b'_' | b'.'));
    if dashed && bytes.get(4) != bytes.get(7) {
        return None;
    }
    let step = usize::from(dashed);
    let (year, month, day) = (
        number(0, 4)?,
        number(4 + step, 2)?,
        number(6 + 2 * step, 2)?,
    );
    let end = 8 + 2 * step;
    let plausible =
        (2000..2100).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !plausible {
        return None;
    }
    // A time behind it: `T1015`, `_101530`, or digits at once.
    let rest = &text[end..];
    let mark = usize::from(rest.starts_with(['T', 't', '_', '-']));
    let digits = rest[mark..]
        .bytes()
        .take_while(|it| it.is_ascii_digit() || *it == b':')
        .count();
    let time = if digits >= 4 { mark + digits } else { 0 };
    let followed = text[end + time..].starts_with(|it: char| it.is_ascii_digit());
    (!followed).then_some(end + time)
}

/// Two stars with nothing but a mark between them say no more than one.
pub(crate) fn merge_stars(glob: &str) -> String {
    let mut merged = glob.to_owned();
    for mark in ["", ".", "-", "_"] {
        let pair = format!("{STAR}{mark}{STAR}");
        while merged.contains(&pair) && !merged.contains("[*]") {
            merged = merged.replace(&pair, STAR);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{Host, Look, generalise};

    fn check(component: &str, unsure: bool, expect: Option<(&str, Look)>) {
        let host = Host {
            name: "runner-7".to_owned(),
            user: "ci".to_owned() + "bot",
            uid: 1001,
        };
        let found = generalise(component, &host, false, unsure);
        let expect = expect.map(|(glob, look)| (glob.to_owned(), look));
        assert_eq!(found, expect, "{component}");
    }

    #[test]
    fn what_changes_by_itself_is_seen() {
        check(
            "report-2026-11-29.html",
            false,
            Some(("report-*.html", Look::Date)),
        );
        check("20261129T101530.log", false, Some(("*.log", Look::Date)));
        check("run_20261129_1015", false, Some(("run_*", Look::Date)));
        check("x.runner-7.y", false, Some(("x.*.y", Look::Host)));
        check("pytest-of-cibot", false, Some(("pytest-of-*", Look::User)));
        check("u1001", false, None);
        check("u-1001", false, Some(("u-*", Look::Uid)));
        check(
            "a-123e4567-e89b-12d3-a456-426614174000",
            false,
            Some(("a-*", Look::Uuid)),
        );
        check(
            ".coverage.runner-7.4242.123456",
            true,
            Some((".coverage.*", Look::Host)),
        );
        check("job.4242", true, Some(("job.*", Look::Number)));
        check("job.pid42", true, Some(("job.*", Look::Number)));
        check("x-4f9a8b7c6d", true, Some(("x-*", Look::Random)));
        check("x.HG4aZPaveGVh", true, Some(("x.*", Look::Random)));
    }

    #[test]
    fn what_may_stay_is_left_alone() {
        for name in [
            "v1.2.3",
            "test_1.py",
            "20",
            "2026",
            "1999-01-01",
            "2026-13-01",
            "20261399",
            "abcdef",
            "lib.so.6",
            "cibots",
            "x86_64",
        ] {
            check(name, false, None);
        }
        check("job.4242", false, None);
        check("x-4f9a8b7c6d", false, None);
        let host = Host {
            user: "root".to_owned(),
            ..Host::default()
        };
        assert_eq!(generalise("root", &host, true, false), None);
        let host = Host {
            name: "build".to_owned(),
            ..Host::default()
        };
        assert_eq!(generalise("build", &host, true, false), None);
        let log = generalise("log.build", &host, true, false);
        assert_eq!(log, Some(("log.*".to_owned(), Look::Host)));
    }

    #[test]
    fn what_a_glob_would_take_for_its_own_is_kept() {
        check("[x]-2026-11-29", false, Some(("[[]x[]]-*", Look::Date)));
    }
}
