//! Text form of limits, as it stands in configuration files, logs and answers.

use std::fmt;
use std::str::FromStr;

use super::{FixedWindow, LeakyBucket, Limit, SlidingCounter, SlidingLog, TokenBucket};
use crate::error::LimitError;
use crate::rate::Span;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket(rule) => {
                write!(f, "token_bucket {} burst {}", rule.rate(), rule.quota())?;
                if !self.starts_full() {
                    write!(f, " initial {}", rule.starts_with())?;
                }
                Ok(())
            }
            Self::LeakyBucket(rule) => {
                write!(f, "leaky_bucket {} depth {}", rule.rate(), rule.quota())
            }
            Self::FixedWindow(rule) => {
                let window = Span(rule.window());
                write!(f, "fixed_window {} per {window}", rule.quota())?;
                match rule.offset() {
                    Some(offset) => write!(f, " aligned {}", Span(offset)),
                    None => Ok(()),
                }
            }
            Self::SlidingLog(rule) => {
                let window = Span(rule.window());
                write!(f, "sliding_log {} per {window}", rule.quota())
            }
            Self::SlidingCounter(rule) => {
                let window = Span(rule.window());
                write!(f, "sliding_counter {} per {window}", rule.quota())
            }
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| LimitError::Syntax);
        let span = |text: &str| Span::parse(text).ok_or(LimitError::Syntax);
        let words: Vec<&str> = text.split_whitespace().collect();
        let limit = match words[..] {
            ["token_bucket", rate, "burst", burst] => {
                TokenBucket::new(rate.parse()?, number(burst)?)?.into()
            }
            ["token_bucket", rate, "burst", burst, "initial", initial] => {
                let (burst, initial) = (number(burst)?, number(initial)?);
                if initial > burst {
                    return Err(LimitError::InitialAboveBurst { initial, burst });
                }
                TokenBucket::new(rate.parse()?, burst)?
                    .initial(initial)
                    .into()
            }
            ["leaky_bucket", rate, "depth", depth] => {
                LeakyBucket::new(rate.parse()?, number(depth)?)?.into()
            }
            ["fixed_window", limit, "per", window] => {
                FixedWindow::new(number(limit)?, span(window)?)?.into()
            }
            ["fixed_window", limit, "per", window, "aligned"] => {
                FixedWindow::new(number(limit)?, span(window)?)?
                    .aligned(std::time::Duration::ZERO)
                    .into()
            }
            ["fixed_window", limit, "per", window, "aligned", offset] => {
                FixedWindow::new(number(limit)?, span(window)?)?
                    .aligned(span(offset)?)
                    .into()
            }
            ["sliding_log", limit, "per", window] => {
                SlidingLog::new(number(limit)?, span(window)?)?.into()
            }
            ["sliding_counter", limit, "per", window] => {
                SlidingCounter::new(number(limit)?, span(window)?)?.into()
            }
            _ => return Err(LimitError::Syntax),
        };
        Ok(limit)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse()
            .map_err(|error| serde::de::Error::custom(format!("{error}: {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn every_form_reads_back_what_it_prints() {
        for text in [
            "token_bucket 10/s burst 50",
            "token_bucket 10/s burst 50 initial 0",
            "token_bucket 1/2s burst 5",
            "leaky_bucket 10/250ms depth 5",
            "fixed_window 100 per 1min",
            "fixed_window 100 per 1min aligned 0s",
            "fixed_window 1 per 1day aligned 5h",
            "sliding_log 100 per 1min",
            "sliding_counter 100 per 90s",
        ] {
            let limit: Limit = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(limit.to_string(), text);
        }
        let aligned: Result<Limit, _> = "fixed_window 100 per 60s aligned".parse();
        assert_eq!(
            aligned.map(|limit| limit.to_string()).as_deref(),
            Ok("fixed_window 100 per 1min aligned 0s")
        );
    }

    #[test]
    fn what_is_no_limit_is_refused_by_name_and_number() {
        let parse = |text: &str| text.parse::<Limit>().map_err(|error| error.to_string());
        for (text, error) in [
            ("token_bucket 10/s burst 0", "burst is at least 1, got 0"),
            ("leaky_bucket 10/s depth 0", "depth is at least 1, got 0"),
            ("fixed_window 0 per 1min", "limit is at least 1, got 0"),
            ("sliding_log 5 per 0s", "window is at least 1, got 0"),
            (
                "token_bucket 0/s burst 1",
                "a rate needs a count of at least 1, got 0",
            ),
            (
                "token_bucket 10/s burst 5 initial 6",
                "initial is at most the burst of 5, got 6",
            ),
            (
                "token_bucket 1/day burst 200000",
                "a burst of 200000 at 1/day takes longer than 9223372036854775807 ns (292 years) to fill",
            ),
            (
                "sliding_counter 1 per 200000day",
                "a window is at most 9223372036854775807 ns (292 years), got 17280000000s",
            ),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
        for text in [
            "",
            "token_bucket",
            "token_bucket 10/s",
            "sliding_log 1 per",
            "window 1 per 1s",
            "leaky_bucket 10/s depth 5 x",
        ] {
            assert_eq!(text.parse::<Limit>(), Err(LimitError::Syntax), "{text:?}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_uses_the_text_form() {
        let limit = Limit::from(Rate::per_second(10).burst(50));
        let json = serde_json::to_string(&limit).expect("a text serializes");
        assert_eq!(json, "\"token_bucket 10/s burst 50\"");
        assert_eq!(serde_json::from_str::<Limit>(&json).ok(), Some(limit));
    }

    fn any_limit() -> impl Strategy<Value = Limit> {
        (
            0..6,
            1..=u64::MAX,
            1..=u64::MAX,
            1..1_000_000_u64,
            any::<u64>(),
        )
            .prop_filter_map(
                "it has to be valid",
                |(kind, count, period, quota, extra)| {
                    let rate = Rate::new(count, Duration::from_nanos(period)).ok()?;
                    let window = Duration::from_nanos(period);
                    Some(match kind {
                        0 => TokenBucket::new(rate, quota).ok()?.into(),
                        1 => TokenBucket::new(rate, quota)
                            .ok()?
                            .initial(extra % quota)
                            .into(),
                        2 => LeakyBucket::new(rate, quota).ok()?.into(),
                        3 => FixedWindow::new(count, window).ok()?.into(),
                        4 => FixedWindow::new(count, window)
                            .ok()?
                            .aligned(Duration::from_nanos(extra))
                            .into(),
                        _ => SlidingLog::new(count, window).ok()?.into(),
                    })
                },
            )
    }

    proptest! {
        #[test]
        fn text_round_trips(limit in any_limit()) {
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(token_bucket|fixed_window|.{0,9}) .{0,30}") {
            let _ = text.parse::<Limit>();
        }
    }
}
