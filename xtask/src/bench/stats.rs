//! Medians of paired runs.

use std::fmt;

/// The middle of a sorted half of a list, and where the middle half of the values lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// A quarter of the values is below this.
    pub(crate) low: f64,
    /// A quarter of the values is above this.
    pub(crate) high: f64,
}

impl Spread {
    /// Of some values; nothing when there are none.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            values
                .get(values.len().saturating_sub(1) * quarter / 4)
                .copied()
        };
        Some(Self {
            median: at(2)?,
            low: at(1)?,
            high: at(3)?,
        })
    }

    /// Of the ratios of values that were measured as pairs, right after each other: what slows a shared machine for
    /// a while slows both.
    pub(crate) fn of_ratios(values: &[f64], bare: &[f64]) -> Option<Self> {
        Self::of(
            values
                .iter()
                .zip(bare)
                .map(|(value, bare)| value / bare)
                .collect(),
        )
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expect: &str) {
        let spread = Spread::of(values.to_vec()).map(|spread| spread.to_string());
        assert_eq!(spread.as_deref().unwrap_or("nothing"), expect);
    }

    #[test]
    fn the_median_does_not_follow_an_outlier() {
        check(&[], "nothing");
        check(&[2.0], "2.00 (2.00–2.00)");
        check(&[9.0, 1.0, 2.0, 3.0, 1000.0], "3.00 (2.00–9.00)");
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let spread = Spread::of_ratios(&[2.0, 20.0, 6.0], &[1.0, 10.0, 2.0]).unwrap();
        assert_eq!(spread.to_string(), "2.00 (2.00–2.00)");
    }
}
