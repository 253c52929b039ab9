//! Sizes from what was recorded: the queue is replayed over it.

use std::time::Duration;

use super::figures::brief;
use super::generate::per_second;
use super::model::Simulation;
use super::sizing::{Expected, MARGIN, Size, Sizing};
use super::trace::Arrival;
use crate::error::BuildError;
use crate::queue::Builder;

impl Sizing {
    /// Sizes for recorded arrivals: the queue is replayed over them.
    ///
    /// # Errors
    /// The first error among the arrivals; or a [`BuildError`] as such an error.
    pub fn trace<E: From<BuildError>>(
        &self,
        arrivals: impl IntoIterator<Item = Result<Arrival, E>>,
    ) -> Result<Size, E> {
        let mut size = self.bounds();
        let queue = Builder::new(self.rate)
            .max_depth(size.max_depth)
            .watermarks(size.low, size.high);
        let rate = per_second(self.rate);
        let edge = MARGIN * rate;
        let (mut level, mut burst, mut last, mut cost) = (0.0_f64, 0.0_f64, 0.0, 0.0);
        let (mut second, mut in_second, mut busiest) = (0, 0.0, 0.0_f64);
        let measured = arrivals.into_iter().inspect(|arrival| {
            let Ok(arrival) = arrival else { return };
            let (now, units) = (
                arrival.offset.as_secs_f64(),
                arrival.cost.unwrap_or(1).max(1) as f64,
            );
            level = (level - edge * (now - last)).max(0.0) + units;
            burst = burst.max(level);
            if arrival.offset.as_secs() != second {
                (second, in_second) = (arrival.offset.as_secs(), 0.0);
            }
            in_second += units;
            busiest = busiest.max(in_second);
            cost += units;
            last = now;
        });
        let report = Simulation::new(queue)?.run(measured)?;
        let length = report.arriving.as_secs_f64();
        let mean = if length > 0.0 { cost / length } else { 0.0 };
        self.warn_of(
            &mut size,
            mean / rate,
            &format!("the mean of the trace, {mean:.1}/s,"),
        );
        let units = |time: Duration| time.as_secs_f64() * rate;
        let expected = Expected {
            mean: units(report.wait.mean()),
            p50: units(report.wait.quantile(0.5)),
            p99: units(report.wait.quantile(0.99)),
            refused: report.outcomes.refused() as f64 / report.outcomes.total().max(1) as f64,
        };
        self.fill(
            &mut size,
            &expected,
            "replayed: the trace as it is, callers who take the first answer",
        );
        size.line("arrivals", report.outcomes.total().to_string(), "as read");
        size.line(
            "mean offered",
            format!("{mean:.2}/s in cost"),
            "over the whole trace",
        );
        size.line(
            "busiest second",
            format!("{busiest:.0} in cost"),
            "as read, on whole seconds from the first arrival",
        );
        size.line(
            "burst for an edge",
            format!("{:.0} at {edge:.1}/s", burst.ceil()),
            "the least burst at which 90 % of the rate refuses nothing of the trace",
        );
        let clear = (size.max_depth as f64 / (rate - mean).max(0.0)).max(0.0);
        let clear = if mean < rate {
            brief(clear)
        } else {
            "never".to_owned()
        };
        size.line(
            "full queue cleared in",
            clear,
            "the mean of the trace goes on meanwhile",
        );
        Ok(size)
    }
}
