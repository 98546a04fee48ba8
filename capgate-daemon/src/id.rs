//! Names of jobs and secrets of leases.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::rand::{GetRandomFlags, getrandom};

/// Digits of an id, in the order of their bytes, so that ids sort by time. Without `i`, `l`, `o` and `u`, which are
/// easily mistaken.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Digits of the time: 35 bits of seconds last until the year 3058.
const TIME_DIGITS: usize = 7;
/// Digits of chance, for jobs that begin in the same second.
const RANDOM_DIGITS: usize = 5;
/// Bytes of a token: as many as a key has.
const TOKEN_BYTES: usize = 32;

/// A job's id: lower-case letters and digits, the time of the start first. Safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(String);

impl JobId {
    /// An id for a job that begins now.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new() -> std::io::Result<Self> {
        let mut random = [0; RANDOM_DIGITS];
        fill_random(&mut random)?;
        Ok(Self::build(unix_seconds(), random))
    }

    fn build(seconds: u64, random: [u8; RANDOM_DIGITS]) -> Self {
        let digit = |value: u64| char::from(DIGITS[(value & 31) as usize]);
        let time = (0..TIME_DIGITS).rev().map(|at| digit(seconds >> (5 * at)));
        let chance = random.iter().map(|&byte| digit(u64::from(byte)));
        Self(time.chain(chance).collect())
    }

    /// Takes an id from somebody's text; `None` when it cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == TIME_DIGITS + RANDOM_DIGITS
            && text.bytes().all(|byte| DIGITS.contains(&byte));
        fits.then(|| Self(text.to_owned()))
    }

    /// When the job began, in seconds since the epoch.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.0.bytes().take(TIME_DIGITS).fold(0, |seconds, byte| {
            let value = DIGITS.iter().position(|&digit| digit == byte).unwrap_or(0);
            seconds << 5 | value as u64
        })
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A one-time secret. Only its holder may enter the job.
pub struct Token(String);

impl Token {
    /// A fresh one.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new() -> std::io::Result<Self> {
        use fmt::Write;
        let mut bytes = [0; TOKEN_BYTES];
        fill_random(&mut bytes)?;
        let mut text = String::with_capacity(2 * TOKEN_BYTES);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// The secret, for the client that it is made for.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether somebody's text is the secret, in a time that does not depend on where they differ.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), text.as_bytes());
        // The length is no secret.
        own.len() == other.len()
            && std::hint::black_box(
                own.iter()
                    .zip(other)
                    .fold(0, |difference, (own, other)| difference | (own ^ other)),
            ) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Seconds since the epoch.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn fill_random(buffer: &mut [u8]) -> std::io::Result<()> {
    // Up to 256 bytes come whole (getrandom(2)).
    let filled = getrandom(&mut *buffer, GetRandomFlags::empty())?;
    if filled == buffer.len() {
        Ok(())
    } else {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_the_time_that_they_hold() {
        let early = JobId::build(1_700_000_000, [31; RANDOM_DIGITS]);
        let late = JobId::build(1_700_000_001, [0; RANDOM_DIGITS]);
        assert!(early < late);
        assert_eq!(early.started(), 1_700_000_000);
        assert_eq!(JobId::parse(early.as_str()), Some(early));
    }

    #[test]
    fn what_could_be_a_path_is_no_id() {
        for text in [
            "",
            "..",
            "../../etc/pw",
            "1nq8w3k7x2f",
            "1NQ8W3K7X2F0",
            "1nq8w3k7x2f0\n",
        ] {
            assert_eq!(JobId::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_token_matches_itself_alone_and_is_not_printed() -> std::io::Result<()> {
        let (one, other) = (Token::new()?, Token::new()?);
        assert!(one.matches(one.reveal()) && !one.matches(other.reveal()));
        assert!(!one.matches("") && !one.matches(&one.reveal()[1..]));
        assert_eq!(format!("{one:?}"), "Token(…)");
        Ok(())
    }
}
