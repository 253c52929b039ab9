//! Times as JSON has them: seconds, with a fraction.

use std::time::{Duration, TryFromFloatSecsError};

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    read(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn read(seconds: f64) -> Result<Duration, TryFromFloatSecsError> {
    let time = Duration::try_from_secs_f64(seconds)?;
    // A float holds dates to a quarter of a microsecond: what it has beyond the microsecond is noise.
    let is_date = time.as_secs() > FEW_DAYS;
    Ok(if is_date { to_micros(time) } else { time })
}

/// Rounded to the microsecond.
fn to_micros(time: Duration) -> Duration {
    let nanos = time.subsec_nanos();
    let micros = (nanos + 500) / 1000;
    Duration::from_secs(time.as_secs()) + Duration::from_micros(micros.into())
}

/// Up to here a float holds the nanosecond.
const FEW_DAYS: u64 = 1_000_000;

/// The same for times that may be missing.
pub(super) mod optional {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::observe) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_some(&time.as_secs_f64()),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::observe) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        let time = seconds.map(super::read).transpose();
        time.map_err(serde::de::Error::custom)
    }
}
