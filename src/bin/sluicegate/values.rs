//! Values of the command line: what does not read says what would.

use std::time::Duration;

use sluicegate::Rate;

/// A span of time like `500ms` or `10min`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    if ["0", "0s", "0ms"].contains(&text) {
        return Ok(Duration::ZERO);
    }
    // A rate knows every form of a span: it is what one is counted per.
    let digit = text.starts_with(|first: char| first.is_ascii_digit());
    let rate = digit.then(|| format!("1/{text}").parse::<Rate>().ok());
    rate.flatten()
        .map(Rate::period)
        .ok_or_else(|| "expected a span of time like \"500ms\", \"2s\" or \"10min\"".to_owned())
}

/// A rate like `200/s`; a bare number is per second.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let per_second = text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = if per_second {
        format!("{text}/s")
    } else {
        text.to_owned()
    };
    whole
        .parse()
        .map_err(|error| format!("{error}; expected a rate like \"200/s\" or \"5/min\""))
}

/// A rate and a burst: `180/s,50`.
pub(crate) fn edge(text: &str) -> Result<(Rate, u64), String> {
    let wrong = || "expected a rate and a burst like \"180/s,50\"".to_owned();
    let (first, burst) = text.split_once(',').ok_or_else(wrong)?;
    let burst = burst.trim().parse().ok().filter(|burst| *burst > 0);
    Ok((rate(first.trim())?, burst.ok_or_else(wrong)?))
}

/// A number above zero, finite.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("expected a number above 0".to_owned()),
    }
}

/// Jobs at once, and the power with which more of them slow each other down: `50,1.5`.
pub(crate) fn knee(text: &str) -> Result<(u64, f64), String> {
    let (knee, power) = text.split_once(',').unwrap_or((text, "1"));
    match (knee.trim().parse(), power.trim().parse::<f64>()) {
        (Ok(knee), Ok(power)) if knee > 0 && (0.0..=10.0).contains(&power) => Ok((knee, power)),
        _ => Err("expected a number of jobs and a power up to 10, like \"50,1\"".to_owned()),
    }
}

/// What a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    Rate,
    MaxDepth,
}

/// Values that a setting takes one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    pub(crate) what: Swept,
    pub(crate) values: Vec<u64>,
}

/// `rate=100..500:50`, both ends included.
pub(crate) fn sweep(text: &str) -> Result<Sweep, String> {
    let wrong = || {
        "expected a setting and its values like \"rate=100..500:50\" or \"max_depth=50..200:10\""
            .to_owned()
    };
    let (what, range) = text.split_once('=').ok_or_else(wrong)?;
    let what = match what.trim() {
        "rate" => Swept::Rate,
        "max_depth" => Swept::MaxDepth,
        _ => return Err(wrong()),
    };
    let (ends, step) = range.split_once(':').ok_or_else(wrong)?;
    let (from, to) = ends.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0);
    let (Some(from), Some(to), Some(step)) = (number(from), number(to), number(step)) else {
        return Err(wrong());
    };
    let steps = to.saturating_sub(from) / step;
    if from > to || steps >= MOST_RUNS {
        return Err(format!("expected 1 to {MOST_RUNS} values in rising order"));
    }
    let values = (0..=steps).map(|index| from + index * step).collect();
    Ok(Sweep { what, values })
}

const MOST_RUNS: u64 = 1000;
