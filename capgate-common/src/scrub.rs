//! Masking what looks like a secret in a command line, before it is stored or shown.
//!
//! A recogniser of secrets is never complete. This one errs towards masking: evidence loses an argument that was harmless sooner than it keeps a
//! password. Masked are the values of options and variables with a telling name, headers, the credentials in a URL, and tokens
//! of well-known shapes.

/// What stands in the place of a secret.
pub const MASK: &str = "***";
/// Most arguments that are kept; the last one kept then says how many more there were.
pub const MAX_ARGS: usize = 64;
/// Longest argument that is kept, in bytes.
pub const MAX_ARG_BYTES: usize = 1024;

/// Parts of a name that tell a secret wherever they stand in it.
const TELLING: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "authorization",
    "apikey",
    "api-key",
    "api_key",
    "accesskey",
    "accesstoken",
    "authtoken",
    "privatekey",
    "sessionid",
    "userpwd",
];
/// Words of a name that tell a secret when they stand alone.
const TELLING_WORDS: [&str; 11] = [
    "token", "tokens", "key", "pass", "pw", "pwd", "pat", "auth", "bearer", "cookie", "session",
];
/// Last words of a name that says where a secret is, not what it is.
const HARMLESS_LAST_WORDS: [&str; 8] =
    ["file", "path", "dir", "env", "type", "size", "store", "var"];
/// Options whose value is `user:password`.
const LOGIN_OPTIONS: [&str; 3] = ["-u", "--user", "--proxy-user"];
/// Words that stand between `Authorization:` and the secret.
const SCHEMES: [&str; 4] = ["bearer", "basic", "digest", "token"];
/// Variables whose names tell a secret by the rules above, and that every login has: their values are in ordinary arguments.
const HARMLESS_VARIABLES: [&str; 9] = [
    "PWD",
    "SSH_AUTH_SOCK",
    "DESKTOP_SESSION",
    "SESSION_MANAGER",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_SESSION_CLASS",
    "XDG_SESSION_DESKTOP",
    "XDG_SESSION_ID",
    "XDG_SESSION_TYPE",
];
/// How tokens of well-known services begin, and the least length of what follows.
const SHAPES: [(&str, usize); 25] = [
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("gldt-", 16),
    ("glrt-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("sk-", 20),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("sk_test_", 16),
    ("npm_", 30),
    ("pypi-", 20),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("hf_", 30),
    ("eyJ", 30),
];

/// A command line without what looks like a secret, and bounded: at most [`MAX_ARGS`] arguments of at most about
/// [`MAX_ARG_BYTES`] bytes.
pub fn scrub(argv: &[String]) -> Vec<String> {
    let mut next = Expect::Anything;
    // Masked first: half a secret would not be recognised.
    bounded_by(argv, |arg| {
        let (text, expect) = argument(arg, next);
        next = expect;
        text
    })
}

/// A command line as it is, but bounded in the same way.
pub(crate) fn bounded(argv: &[String]) -> Vec<String> {
    bounded_by(argv, str::to_owned)
}

fn bounded_by(argv: &[String], mut shown: impl FnMut(&str) -> String) -> Vec<String> {
    let first = argv.iter().take(MAX_ARGS);
    let mut bounded: Vec<String> = first.map(|arg| shorten(shown(arg))).collect();
    if argv.len() > MAX_ARGS {
        bounded.push(format!("… {} more", argv.len() - MAX_ARGS));
    }
    bounded
}

/// What the words so far say about the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Anything,
    /// A secret.
    Secret,
    /// `user:password`.
    Login,
}

/// One argument, and what it says about the next.
fn argument(arg: &str, expect: Expect) -> (String, Expect) {
    if expect == Expect::Secret && !arg.starts_with("--") {
        return (MASK.to_owned(), Expect::Anything);
    }
    // `NAME=…` and `Name: …`: all of the rest is the value, with its blanks.
    if let Some(end) = arg.find(['=', ':'])
        && is_secret_name(arg[..end].trim_start_matches(['\'', '"']))
        && !arg[end..].starts_with("://")
        && arg.len() > end + 1
    {
        let blank = if arg[end + 1..].starts_with(' ') {
            " "
        } else {
            ""
        };
        return (format!("{}{blank}{MASK}", &arg[..=end]), Expect::Anything);
    }
    let mut text = String::with_capacity(arg.len());
    let mut expect = expect;
    let mut words = 0;
    for word in arg.split_inclusive(char::is_whitespace) {
        let core = word.trim_end_matches(char::is_whitespace);
        if core.is_empty() {
            text.push_str(word);
            continue;
        }
        words += 1;
        let (masked, next) = quoted(core, expect);
        text.push_str(&masked);
        text.push_str(&word[core.len()..]);
        if next == Expect::Anything && core.starts_with("-----BEGIN") {
            text.push_str(MASK);
            return (text, Expect::Anything);
        }
        expect = next;
    }
    // A script's last word says nothing about the argument after the script.
    let next = if words == 1 { expect } else { Expect::Anything };
    (text, next)
}

/// One word, perhaps with quotes around it.
fn quoted(text: &str, expect: Expect) -> (String, Expect) {
    const QUOTES: [char; 2] = ['\'', '"'];
    let core = text.trim_start_matches(QUOTES);
    let before = &text[..text.len() - core.len()];
    let trimmed = core.trim_end_matches(QUOTES);
    let after = &core[trimmed.len()..];
    let (masked, next) = word(trimmed, expect);
    (format!("{before}{masked}{after}"), next)
}

fn word(text: &str, expect: Expect) -> (String, Expect) {
    let is_scheme = SCHEMES
        .iter()
        .any(|scheme| text.eq_ignore_ascii_case(scheme));
    match expect {
        Expect::Secret if is_scheme => return (text.to_owned(), Expect::Secret),
        Expect::Secret if !text.starts_with("--") => return (MASK.to_owned(), Expect::Anything),
        Expect::Login => {
            // `1000:1000` is a user and a group.
            if let Some((user, password)) = text.split_once(':')
                && !is_number(password)
            {
                return (format!("{user}:{MASK}"), Expect::Anything);
            }
        }
        Expect::Anything | Expect::Secret => {}
    }
    let next = if LOGIN_OPTIONS.contains(&text) {
        Expect::Login
    } else if text.eq_ignore_ascii_case("bearer")
        || (text.starts_with('-') && is_secret_name(text))
        || text.strip_suffix(':').is_some_and(is_secret_name)
    {
        Expect::Secret
    } else {
        Expect::Anything
    };
    (shapes(&assignments(&urls(text))), next)
}

/// `scheme://user:password@host` without the user and password. A port that is no number is the rest of a URL that was cut.
fn urls(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, from) = rest.split_at(start + 3);
        masked.push_str(before);
        let end = from.find(['/', '?', '#', '\'', '"']).unwrap_or(from.len());
        let authority = &from[..end];
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        rest = if let Some(at) = authority.rfind('@') {
            masked.push_str(MASK);
            &from[at..]
        } else if port.is_some_and(|port| !is_number(port) && !port.ends_with(']')) {
            masked.push_str(MASK);
            &from[end..]
        } else {
            from
        };
    }
    masked.push_str(rest);
    masked
}

/// `name=value` within a word: in queries, in scripts.
fn assignments(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(sign) = rest.find('=') {
        let (before, value) = rest.split_at(sign + 1);
        masked.push_str(before);
        let name_start = before[..sign]
            .rfind(|c: char| !is_name_char(c))
            .map_or(0, |at| {
                at + before[at..].chars().next().map_or(1, char::len_utf8)
            });
        rest = value;
        if is_secret_name(&before[name_start..sign]) && !value.is_empty() {
            masked.push_str(MASK);
            let end = value.find(['&', ';', '\'', '"']).unwrap_or(value.len());
            rest = &value[end..];
        }
    }
    masked.push_str(rest);
    masked
}

/// Tokens that give themselves away.
fn shapes(text: &str) -> String {
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_token_char) {
        let (before, from) = rest.split_at(start);
        masked.push_str(before);
        let end = from.find(|c| !is_token_char(c)).unwrap_or(from.len());
        let (run, after) = from.split_at(end);
        masked.push_str(if is_token(run) { MASK } else { run });
        rest = after;
    }
    masked.push_str(rest);
    masked
}

fn is_token(run: &str) -> bool {
    let run = run.trim_start_matches('-');
    SHAPES.iter().any(|(prefix, least)| {
        run.strip_prefix(prefix).is_some_and(|rest| {
            // Words with dashes between them are no token.
            rest.len() >= *least && rest.bytes().any(|byte| byte.is_ascii_digit())
        })
    })
}

/// Whether a variable of an environment holds a secret, by its name.
pub(crate) fn is_secret_variable(name: &str) -> bool {
    is_secret_name(name) && !HARMLESS_VARIABLES.contains(&name)
}

/// Whether a name of an option, a variable or a header tells that its value is secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    if name.is_empty() || !name.chars().all(is_name_char) {
        return false;
    }
    let mut words = name.split(['-', '_', '.']);
    if name
        .rsplit(['-', '_', '.'])
        .next()
        .is_some_and(|last| HARMLESS_LAST_WORDS.contains(&last))
    {
        return false;
    }
    TELLING.iter().any(|telling| name.contains(telling))
        || words.any(|word| TELLING_WORDS.contains(&word))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_ARG_BYTES {
        text.truncate(text.floor_char_boundary(MAX_ARG_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
