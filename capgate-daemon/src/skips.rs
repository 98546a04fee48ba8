//! The units that a job announced as skipped. They come from the job itself, so they are bounded.

use std::collections::{BTreeMap, BTreeSet};

use capgate_common::{
    capability::{CapabilityError, Declaration, MAX_SKIPS},
    evidence::Skip,
    suite::Suite,
};

/// Loss: units were skipped that there was no room for.
const LOST_SKIPS: &str = "skips";

/// Why a job is not told about a capability.
#[derive(Debug, thiserror::Error)]
pub enum SkipError {
    /// The names are none.
    #[error(transparent)]
    Name(#[from] CapabilityError),
    /// There are enough.
    #[error("the job has skipped {MAX_SKIPS} units, as many as one can: its ledger is incomplete")]
    TooMany,
    /// Nobody counts skips any more.
    #[error("the job has ended")]
    Ended,
}

/// Announced skips of one job.
#[derive(Clone, Debug, Default)]
pub struct Skips {
    /// By capability and unit: how often, and when first in milliseconds.
    announced: BTreeMap<(String, String), (u64, u64)>,
    lost: u64,
}

impl Skips {
    /// Adds one.
    ///
    /// # Errors
    /// When there are too many; that is counted.
    pub fn add(&mut self, capability: &str, unit: &str, ms: u64) -> Result<(), SkipError> {
        let key = (capability.to_owned(), unit.to_owned());
        if let Some((count, _)) = self.announced.get_mut(&key) {
            *count = count.saturating_add(1);
            return Ok(());
        }
        if self.announced.len() >= MAX_SKIPS {
            self.lost = self.lost.saturating_add(1);
            return Err(SkipError::TooMany);
        }
        self.announced.insert(key, (1, ms));
        Ok(())
    }

    /// What the ledger says of them. Without a table of capabilities it has those that were needed.
    pub fn seal(&self, declaration: &Declaration, suite: &mut Suite) {
        for (capability, unit) in self.announced.keys() {
            let units = suite.skips.entry(capability.clone()).or_default();
            units.insert(unit.clone());
        }
        suite.absent = if declaration.has_table() {
            Some(declaration.absent().clone())
        } else if suite.skips.is_empty() {
            None
        } else {
            Some(suite.skips.keys().cloned().collect::<BTreeSet<_>>())
        };
    }

    /// What evidence says of them.
    #[must_use]
    pub fn evidence(&self) -> Vec<Skip> {
        self.announced
            .iter()
            .map(|((capability, unit), &(count, first_ms))| Skip {
                unit: unit.clone(),
                capability: capability.clone(),
                count,
                first_ms,
            })
            .collect()
    }

    /// Those that there was no room for, as a kind of loss.
    #[must_use]
    pub fn lost(&self) -> (&'static str, u64) {
        (LOST_SKIPS, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut skips = Skips::default();
        for number in 0..MAX_SKIPS {
            skips.add("docker", &number.to_string(), 1).expect("room");
        }
        assert!(skips.add("docker", "0", 2).is_ok(), "it is there already");
        assert!(matches!(
            skips.add("docker", "more", 2),
            Err(SkipError::TooMany)
        ));
        assert_eq!(skips.lost(), (LOST_SKIPS, 1));
        let evidence = skips.evidence();
        assert_eq!((evidence[0].count, evidence[0].first_ms), (2, 1));
    }

    #[test]
    fn without_a_table_only_what_was_needed_is_declared() {
        let mut suite = Suite::default();
        let mut skips = Skips::default();
        let absent = ["docker".to_owned(), "ipv6".to_owned()].into();
        let declaration = Declaration::new(None, &absent, &BTreeSet::new()).expect("a declaration");
        skips.seal(&declaration, &mut suite);
        assert_eq!(suite, Suite::default());
        skips.add("docker", "test_x", 1).expect("room");
        skips.seal(&declaration, &mut suite);
        assert_eq!(suite.absent, Some(["docker".to_owned()].into()));
    }
}
