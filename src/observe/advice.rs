//! What a snapshot advises.

use std::fmt;

/// A setting that the observed load suggests to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct Advice {
    /// Queue or limiter that it is about.
    pub name: String,
    /// Level or endpoint within it; empty if it is the whole.
    pub subject: String,
    /// What to change.
    pub setting: Setting,
    /// How it is now.
    pub current: String,
    /// What it could be.
    pub suggested: String,
    /// What was seen.
    pub reason: String,
    /// How sure it is.
    pub confidence: Confidence,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.subject.is_empty() {
            write!(f, ", {}", self.subject)?;
        }
        let (setting, confidence) = (self.setting.as_str(), self.confidence.as_str());
        write!(
            f,
            ": {}; suggest {setting} {} in place of {} ({confidence} confidence)",
            self.reason, self.suggested, self.current
        )
    }
}

/// What advice is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Setting {
    /// The limit of a level, in its [text form](crate::Limit), burst included.
    #[default]
    Limit,
    /// The bound of a queue's depth.
    MaxDepth,
}

impl Setting {
    /// Name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::MaxDepth => "max_depth",
        }
    }
}

/// How much was seen before the advice was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Confidence {
    /// Enough to say something.
    #[default]
    Low,
    /// Thousands of requests, over several minutes.
    Medium,
    /// Tens of thousands, over ten minutes, and evenly spread.
    High,
}

impl Confidence {
    /// Name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}
