//! Reserved shares: what a lane gets of the departures however urgent the others are.
//!
//! A lane with a share earns that share of the cost of every departure, its own included, while it has jobs that may
//! leave, and pays for each of its own. Once it has earned the cost of its next job, that job goes first. Over any time
//! in which it has such jobs it gets its share, short of at most the largest job's cost once for each lane with a share
//! and once more. An idle lane earns nothing, none ever owes, and what a lane gets by its urgency alone counts too.

/// What lanes are promised, and have earned of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    /// Millionths of the departures, lane by lane.
    ppm: [u64; 4],
    /// Cost in millionths.
    earned: [u128; 4],
    any: bool,
}

impl Shares {
    pub(crate) fn new(ppm: [u64; 4]) -> Self {
        let mut shares = Self::default();
        shares.set(ppm);
        shares
    }

    /// Changes the promises; what was earned stays.
    pub(crate) fn set(&mut self, ppm: [u64; 4]) {
        self.ppm = ppm;
        self.any = ppm.iter().any(|share| *share > 0);
    }

    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        !self.any
    }

    /// Whether a lane has earned a job of this cost.
    pub(crate) fn affords(&self, lane: usize, cost: u64) -> bool {
        self.ppm[lane] > 0 && self.earned[lane] >= u128::from(cost) * WHOLE
    }

    /// A job of `lane` departs; `busy` = which lanes have more.
    pub(crate) fn depart(&mut self, lane: usize, cost: u64, busy: [bool; 4]) {
        let cost = u128::from(cost);
        for (other, earned) in self.earned.iter_mut().enumerate() {
            let paid = if other == lane { cost * WHOLE } else { 0 };
            *earned = if busy[other] {
                (*earned + cost * u128::from(self.ppm[other])).saturating_sub(paid)
            } else {
                0
            };
        }
    }

    /// Share of the lanes below one, in millionths.
    pub(crate) fn below(&self, lane: usize) -> u128 {
        self.ppm[..lane].iter().copied().map(u128::from).sum()
    }

    /// Whether a lane has a share.
    pub(crate) fn has(&self, lane: usize) -> bool {
        self.ppm[lane] > 0
    }
}

pub(crate) const WHOLE: u128 = 1_000_000;
