//! The rules, as pure arithmetic: state, instant and cost in, verdict out. No clock, no lock, no runtime.

pub(crate) mod ladder;
pub(crate) mod schedule;
pub(crate) mod standing_delay;
