//! What queueing theory knows of arrivals that are independent and a rate that is fixed (M/D/1), in units of 1/R.

/// M/D/1 with room for ever so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endless {
    load: f64,
}

impl Endless {
    /// `load` is above 0 and below 1.
    pub(crate) const fn new(load: f64) -> Self {
        Self { load }
    }

    pub(crate) fn mean_wait(self) -> f64 {
        self.load / (2.0 * (1.0 - self.load))
    }

    /// The wait that the share `p` does not exceed.
    ///
    /// Near the bottom from the exact distribution in its stable form (Franx 2001), further up from the exponential tail,
    /// which agrees with it to four digits there.
    pub(crate) fn quantile(self, p: f64) -> f64 {
        if p <= 1.0 - self.load {
            return 0.0;
        }
        let (decay, weight) = self.tail();
        let tail = (weight / (1.0 - p)).ln() / decay;
        if tail > EXACT_UP_TO {
            return tail;
        }
        let (mut low, mut high) = (0.0, EXACT_UP_TO + 1.0);
        let in_system = self.in_system(high as usize + 2);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if self.within(middle, &in_system) < p {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// The decay `s` of the tail, with load (e^s - 1) = s, and its weight: P(W > t) = weight e^(-s t).
    fn tail(self) -> (f64, f64) {
        let excess = |s: f64| self.load * s.exp_m1() - s;
        let mut high = 1.0;
        while excess(high) < 0.0 {
            high *= 2.0;
        }
        let mut low = 1e-12;
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if excess(middle) < 0.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low, (1.0 - self.load) / (self.load * low.exp() - 1.0))
    }

    /// P(W <= t), given the distribution of the number in the system.
    fn within(self, t: f64, in_system: &[f64]) -> f64 {
        let k = t.floor() as usize + 1;
        let u = k as f64 - t;
        let x = self.load * u;
        let (mut term, mut sum) = ((-x).exp(), 0.0);
        for j in 0..k {
            sum += term * in_system[k - 1 - j];
            term *= x / (j + 1) as f64;
        }
        sum
    }

    /// P(at most m + 1 in the system), for m from 0.
    fn in_system(self, count: usize) -> Vec<f64> {
        let states = states(self.load, count + 1, None);
        let mut sum = states[0];
        let scale = 1.0 - self.load;
        states[1..]
            .iter()
            .map(|state| {
                sum += state;
                (sum * scale).min(1.0)
            })
            .collect()
    }
}

/// M/D/1 with marks: offers are refused from depth `high` on until it has come down to `low`.
///
/// `low = high - 1` is the plain bounded room. Found from what departures leave behind: states in which offers are
/// admitted, and the steps down from `high`, each of them as likely as that the high mark is reached.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    /// What a departure leaves behind: probabilities of 0 to `high` in the system.
    left: Vec<f64>,
    refused: f64,
}

impl Marked {
    pub(crate) fn new(load: f64, low: u64, high: u64) -> Self {
        // Far beyond this the mark is never reached, or always; neither needs the exact chain.
        let high = usize::try_from(high)
            .unwrap_or(MOST_STATES)
            .clamp(1, MOST_STATES);
        let low = usize::try_from(low).unwrap_or(MOST_STATES).min(high - 1);
        if low + 1 < high && load >= 1.0 {
            return Self::overloaded(load, low, high);
        }
        let mut left = states(load, high + 1, None);
        if low + 1 < high {
            // Linear in the frequency with which the mark is reached; where it is, nobody was admitted any more.
            let drain = states(load, high + 1, Some(low + 1));
            let reached = -left[high] / drain[high];
            for (state, drain) in left.iter_mut().zip(drain) {
                *state = (*state + reached * drain).max(0.0);
            }
            left[low + 2..]
                .iter_mut()
                .for_each(|state| *state += reached);
        }
        let sum: f64 = left.iter().sum();
        left.iter_mut().for_each(|state| *state /= sum);
        let refused = (1.0 - 1.0 / (left[0] + load)).max(0.0);
        Self { left, refused }
    }

    /// The limit of heavy load: the depth swings evenly from mark to mark.
    fn overloaded(load: f64, low: usize, high: usize) -> Self {
        let mut left = vec![0.0; high + 1];
        let share = 1.0 / (high - low) as f64;
        left[low + 1..].iter_mut().for_each(|state| *state = share);
        let refused = 1.0 - 1.0 / load;
        Self { left, refused }
    }

    /// Share of the arrivals that are refused.
    pub(crate) const fn refused(&self) -> f64 {
        self.refused
    }

    /// Mean wait of who comes in. What is left of the job in service is half of one, on average over all who find one.
    pub(crate) fn mean_wait(&self) -> f64 {
        let seen = self.left.iter().enumerate().skip(1);
        seen.map(|(number, share)| (number as f64 - 0.5) * share)
            .sum()
    }

    /// The wait that the share `p` of who comes in does not exceed; what is left of the job in service counts as
    /// uniform, which is close where many wait.
    pub(crate) fn quantile(&self, p: f64) -> f64 {
        let mut sum = 0.0;
        // What an arrival that comes in sees is what a departure leaves: each step up is followed by a step down.
        for (number, share) in self.left.iter().enumerate() {
            if sum + share >= p {
                return match number {
                    0 => 0.0,
                    number => (number - 1) as f64 + (p - sum) / share,
                };
            }
            sum += share;
        }
        self.left.len() as f64
    }
}

/// Weights of the states that departures leave behind, in which offers are admitted; the first is 1.
///
/// As many steps lead up over a state as down over it: p(j+1) a(0) = p(0) P(A > j) + sum of p(i) P(A > j + 1 - i), all
/// terms positive, so that nothing cancels. With `drain` it is the answer to one step down from there on that no state
/// accounts for: the sum less 1, with p(0) = 0.
fn states(load: f64, count: usize, drain: Option<usize>) -> Vec<f64> {
    let mut term = (-load).exp();
    let none = term;
    let mut more = Vec::new();
    let mut above = 1.0 - term;
    let mut number = 0.0;
    while above > 1e-17 && more.len() < count + 1 {
        more.push(above);
        number += 1.0;
        term *= load / number;
        above -= term;
    }
    let more = |k: usize| more.get(k).copied().unwrap_or(0.0);
    let mut states = Vec::with_capacity(count);
    states.push(if drain.is_some() { 0.0 } else { 1.0 });
    for j in 0..count.saturating_sub(1) {
        let near = j.saturating_sub(REACH) + 1;
        let up: f64 = (near..=j).map(|i| states[i] * more(j + 1 - i)).sum();
        let unmet = f64::from(u8::from(drain.is_some_and(|from| j >= from)));
        let next: f64 = (states[0] * more(j) + up - unmet) / none;
        states.push(next);
        if next > 1e200 {
            states.iter_mut().for_each(|state| *state *= 1e-200);
        }
    }
    states
}

/// Waits in intervals up to which the exact distribution is worth its price.
const EXACT_UP_TO: f64 = 30.0;
const MOST_STATES: usize = 50_000;
/// More arrivals than this within one interval do not happen at loads up to 20.
const REACH: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: f64, expected: f64, within: f64) {
        assert!(
            (found / expected - 1.0).abs() <= within,
            "{found} is not {expected}"
        );
    }

    #[test]
    fn the_published_table_comes_out() {
        for (load, mean, p50, p90, p99, p999) in [
            (0.5, 0.5, 0.0, 1.516, 3.336, 5.168),
            (0.7, 1.167, 0.730, 3.077, 6.486, 9.894),
            (0.8, 2.0, 1.276, 5.012, 10.36, 15.70),
            (0.9, 4.5, 3.013, 10.78, 21.90, 33.01),
            (0.95, 9.5, 6.481, 22.30, 44.94, 67.57),
            (0.99, 49.5, 34.21, 114.4, 229.2, 343.9),
        ] {
            let queue = Endless::new(load);
            check(queue.mean_wait(), mean, 1e-3);
            for (p, expected) in [(0.9, p90), (0.99, p99), (0.999, p999)] {
                check(queue.quantile(p), expected, 1e-3);
            }
            assert!(
                (queue.quantile(0.5) - p50).abs() <= 1e-3 * p50.max(1.0),
                "{load}"
            );
        }
    }

    #[test]
    fn the_bounded_room_refuses_what_is_published() {
        for (load, room, share) in [
            (0.5, 5, 6.2e-4),
            (0.5, 10, 1.2e-6),
            (0.8, 5, 2.2e-2),
            (0.8, 20, 3.1e-5),
            (0.9, 10, 1.3e-2),
            (0.9, 50, 3.0e-6),
            (0.95, 20, 7.2e-3),
            (1.0, 5, 8.6e-2),
            (1.0, 50, 9.8e-3),
            (1.5, 5, 0.335),
            (1.5, 50, 1.0 / 3.0),
        ] {
            check(Marked::new(load, room - 1, room).refused(), share, 0.05);
        }
        let smallest = |load: f64, loss: f64| {
            (1..).find(|room| Marked::new(load, room - 1, *room).refused() < loss)
        };
        assert_eq!(smallest(0.7, 1e-2), Some(5));
        assert_eq!(smallest(0.9, 1e-3), Some(22));
        assert_eq!(smallest(0.95, 1e-6), Some(107));
    }

    #[test]
    fn a_wide_room_waits_as_an_endless_one_and_a_full_one_as_long_as_it_is() {
        check(Marked::new(0.8, 499, 500).mean_wait(), 2.0, 1e-3);
        check(Marked::new(0.8, 499, 500).quantile(0.99), 10.36, 0.02);
        check(Marked::new(2.0, 98, 99).quantile(0.5), 98.6, 0.01);
        check(Marked::new(1.5, 999, 1000).mean_wait(), 999.0, 0.01);
        assert!(Marked::new(3.0, 99, 100).refused() > 0.6);
    }
}
