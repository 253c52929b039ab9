//! Numbers and names as a terminal shows them.

use std::time::Duration;

use crate::table::brief;

/// A rate with three digits or so.
pub(super) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => count(value.round() as u64),
    }
}

pub(super) fn count(value: u64) -> String {
    match value {
        ..1_000_000 => crate::table::thousands(value),
        1_000_000..1_000_000_000 => format!("{:.2}M", value as f64 / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.2}G", value as f64 / 1e9),
        _ => format!("{:.1e}", value as f64),
    }
}

pub(super) fn share(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

pub(super) fn time(value: Option<Duration>) -> String {
    value.map_or_else(|| "-".into(), brief)
}

/// A text that somebody else chose, as one that can do nothing to a terminal: no control, no change of direction.
pub(super) fn clean(text: &str) -> String {
    let harmless = |letter: char| {
        let turns = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}');
        if letter.is_control() || turns {
            '·'
        } else {
            letter
        }
    };
    text.chars().take(LONGEST).map(harmless).collect()
}

const LONGEST: usize = 120;
