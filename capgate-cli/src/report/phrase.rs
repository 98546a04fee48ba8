//! A sentence that knows which of its parts are names, so that each format can quote them in its own way.

use crate::shown::harmless;

/// Words and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phrase(Vec<Part>);

/// A part of a phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Words of ours.
    Words(String),
    /// A name, key or value: text that may come from the job. Made harmless: no control characters, no newline.
    Name(String),
    /// A sentence with such text in it. Made harmless as well.
    Said(String),
}

impl Phrase {
    /// Words of ours. They hold nothing that came from outside.
    pub(crate) fn words(words: impl Into<String>) -> Self {
        Self::default().and(words)
    }

    /// Something to be quoted.
    pub(crate) fn name(name: &str) -> Self {
        Self::default().and_name(name)
    }

    /// A sentence that was put together elsewhere, of words and names that cannot be told apart any more.
    pub(crate) fn sentence(sentence: &str) -> Self {
        Self(vec![Part::Said(harmless(sentence))])
    }

    /// Adds words.
    pub(crate) fn and(mut self, words: impl Into<String>) -> Self {
        self.0.push(Part::Words(words.into()));
        self
    }

    /// Adds a name.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.0.push(Part::Name(harmless(name)));
        self
    }

    /// Adds another phrase.
    pub(crate) fn and_all(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The parts, in order.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The text for a terminal or a log.
    pub(crate) fn plain(&self) -> String {
        let parts = self.0.iter().map(|part| match part {
            Part::Words(text) | Part::Said(text) => text.clone(),
            Part::Name(text) => format!("`{text}`"),
        });
        parts.collect()
    }
}
