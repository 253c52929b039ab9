//! Times counted on a scale of logarithms: percentiles of any number of values in a bounded memory.

use std::time::Duration;

use crate::tick::nanos;

/// Distribution of times. A percentile is off by less than 0.8 %; count, mean and maximum are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Grown to the largest value seen: 58 KiB at most.
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub(crate) const fn new() -> Self {
        Self {
            counts: Vec::new(),
            count: 0,
            sum: 0,
            max: 0,
        }
    }

    pub(crate) fn record(&mut self, time: Duration) {
        let value = nanos(time);
        let index = index(value);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Value that the given share of all values does not exceed; zero if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(middle(index).min(self.max));
            }
        }
        self.max()
    }

    /// Arithmetic mean; zero if there are no values.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let mean = self.sum / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Largest value.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn sum_nanos(&self) -> u128 {
        self.sum
    }
}

/// Values below 2^7 have a cell each; above, every octave has 128 cells.
const fn index(value: u64) -> usize {
    let octave = (64 - value.leading_zeros()).saturating_sub(FRACTION + 1);
    (octave as usize) * CELLS + (value >> octave) as usize
}

/// Middle of the values of a cell.
const fn middle(index: usize) -> u64 {
    if index < 2 * CELLS {
        return index as u64;
    }
    let octave = index / CELLS - 1;
    let low = (index - octave * CELLS) as u64;
    (low << octave) + (1_u64 << octave) / 2
}

const FRACTION: u32 = 7;
const CELLS: usize = 1 << FRACTION;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cell_is_narrower_than_its_promise(value in any::<u64>()) {
            let middle = middle(index(value));
            prop_assert!(middle.abs_diff(value) as f64 <= value as f64 * 0.008, "{value} {middle}");
        }
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        (1..=1000).for_each(|ms| histogram.record(Duration::from_millis(ms)));
        let near = |share: f64, ms: f64| {
            let off = histogram.quantile(share).as_secs_f64() * 1e3 / ms - 1.0;
            assert!(off.abs() < 0.008, "{share}: off by {off}");
        };
        near(0.5, 500.0);
        near(0.99, 990.0);
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(1000));
        assert_eq!(histogram.mean(), Duration::from_micros(500_500));
    }
}
