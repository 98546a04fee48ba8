//! Host names as ledger entries have them.
//!
//! A name of the domain name system may hold any byte; in an entry it has one spelling, and none that reads like another kind of
//! entry.

use std::{fmt, str::FromStr};

use crate::address::{AddressError, Piece};

/// Most bytes of a name without its escapes: 255 on the wire, less the first length byte and the root (RFC 1035, 2.3.4).
const LONGEST: usize = 253;
/// Most bytes of a label (RFC 1035, 2.3.4).
const LONGEST_LABEL: usize = 63;

/// Words that begin or are an entry of another kind: a host that is called so is written with its first letter escaped.
const WORDS: [&str; 7] = ["dns", "packet", "raw", "resolver", "self", "unix", "vsock"];

/// A name of the domain name system: letters in lower case, no dot at the end, `.` for the root. Every byte of a label that is no
/// letter, digit, `-` or `_` is written `\xNN`, and so is the first byte of what would read like an address or another entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// The name with these labels, the root's empty one left out. Labels hold any bytes; the caller bounds them.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut written: Vec<String> = labels.into_iter().map(label).collect();
        let only = written.len() == 1;
        let Some(last) = written.last_mut() else {
            return Self(".".to_owned());
        };
        // No top-level domain is a number: `192.0.2.1` reads like an address.
        if last.bytes().all(|byte| byte.is_ascii_digit()) || only && WORDS.contains(&last.as_str())
        {
            let first = last.remove(0);
            last.insert_str(0, &format!("\\x{:02x}", u32::from(first)));
        }
        Self(written.join("."))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This name below another one, as a resolver puts a search domain behind it.
    pub fn within(&self, domain: &Self) -> Self {
        let labels: Vec<Vec<u8>> = self.labels().chain(domain.labels()).collect();
        Self::from_labels(labels.iter().map(Vec::as_slice))
    }

    /// This name without a domain at its end; `None` when it is not below that.
    pub fn without(&self, domain: &Self) -> Option<Self> {
        let (own, end): (Vec<_>, Vec<_>) = (self.labels().collect(), domain.labels().collect());
        let rest = own.strip_suffix(end.as_slice())?;
        (!rest.is_empty() && !end.is_empty())
            .then(|| Self::from_labels(rest.iter().map(Vec::as_slice)))
    }

    /// The bytes of each label.
    fn labels(&self) -> impl Iterator<Item = Vec<u8>> {
        let text = self.0.as_str();
        let labels = text.split('.').filter(|label| !label.is_empty());
        labels.map(|label| unescape(label).unwrap_or_default())
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = AddressError;

    /// Reads a name as entries have it, in letters of any case.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        read(Piece::whole(text))
    }
}

/// Reads a name as entries have it, in letters of any case.
pub(crate) fn read(piece: Piece<'_>) -> Result<HostName, AddressError> {
    let text = piece.text();
    if text == "." {
        return Ok(HostName(text.to_owned()));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.\\".contains(c);
    if let Some(bad) = text.find(|c| !plain(c)) {
        return Err(piece.skip(bad).error("neither an address nor a host name"));
    }
    let mut labels = Vec::new();
    let mut rest = piece;
    loop {
        let (now, later) = match rest.split_once('.') {
            Some((now, later)) => (now, Some(later)),
            None => (rest, None),
        };
        let bytes = unescape(now.text())
            .ok_or_else(|| now.error("a backslash in a host name stands before `xNN`"))?;
        if !(1..=LONGEST_LABEL).contains(&bytes.len()) {
            return Err(now.error("neither an address nor a host name; a name is labels of 1 to 63 bytes with dots between them"));
        }
        labels.push(bytes);
        match later {
            Some(later) => rest = later,
            None => break,
        }
    }
    if labels.iter().map(|label| label.len() + 1).sum::<usize>() > LONGEST + 1 {
        return Err(piece.error("a host name has at most 253 bytes"));
    }
    let name = HostName::from_labels(labels.iter().map(Vec::as_slice));
    if name.as_str().eq_ignore_ascii_case(text) {
        Ok(name)
    } else {
        Err(piece.error(&format!("the host name is written `{name}`")))
    }
}

fn label(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte.to_ascii_lowercase() {
            plain if plain.is_ascii_alphanumeric() || b"-_".contains(&plain) => {
                text.push(char::from(plain));
            }
            other => {
                // Writing to a string cannot fail.
                let _: fmt::Result = write!(text, "\\x{other:02x}");
            }
        }
    }
    text
}

/// The bytes of a label; `None` for a backslash that begins no escape.
fn unescape(label: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(label.len());
    let mut rest = label.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match after {
            _ if *first != b'\\' => {
                bytes.push(*first);
                after
            }
            [b'x', high, low, after @ ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(digit(high)? << 4 | digit(low)?).ok()?);
                after
            }
            _ => return None,
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::HostName;

    fn name(labels: &[&[u8]]) -> String {
        HostName::from_labels(labels.iter().copied()).to_string()
    }

    #[test]
    fn a_name_has_one_spelling() {
        for (labels, text) in [
            (&[&b"WWW"[..], b"Example", b"org"][..], "www.example.org"),
            (&[], "."),
            (&[b"_ldap", b"_tcp", b"example"], "_ldap._tcp.example"),
            (&[b"a.b", b"org"], "a\\x2eb.org"),
            (&[b"*", b"org"], "\\x2a.org"),
            (&[b"\x1b[2J", b"\xff"], "\\x1b\\x5b2j.\\xff"),
            (&[b"192", b"0", b"2", b"1"], "192.0.2.\\x31"),
            (&[b"1", b"2", b"in-addr", b"arpa"], "1.2.in-addr.arpa"),
            (&[b"Resolver"], "\\x72esolver"),
            (&[b"unix", b"example"], "unix.example"),
        ] {
            assert_eq!(name(labels), text);
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn another_spelling_is_refused() {
        for text in [
            "",
            "a..b",
            "a.",
            "192.0.2.1",
            "a b",
            "a\\b",
            "a\\x6",
            "\\x61",
            "resolver",
            "a\\x2",
            "é",
            "*",
        ] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
        let label = "a".repeat(64);
        assert!(label.parse::<HostName>().is_err());
        let long = ["a"; 128].join(".");
        assert!(long.parse::<HostName>().is_err());
        assert!(["a"; 127].join(".").parse::<HostName>().is_ok());
        assert_eq!(
            "WWW.Example.ORG".parse::<HostName>().unwrap().as_str(),
            "www.example.org"
        );
    }

    #[test]
    fn a_search_domain_goes_behind_a_name_and_away_again() {
        let read = |text: &str| text.parse::<HostName>().unwrap();
        let whole = read("www").within(&read("example.org"));
        assert_eq!(whole, read("www.example.org"));
        assert_eq!(whole.without(&read("example.org")), Some(read("www")));
        assert_eq!(whole.without(&read("ample.org")), None);
        assert_eq!(whole.without(&whole), None);
        assert_eq!(read("\\x72esolver").within(&read("b")), read("resolver.b"));
    }
}
