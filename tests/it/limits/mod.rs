//! Limits: what passes, in which order, and what it costs to ask.

mod changed;
mod direct;
mod doors;
mod hierarchy;
mod keyed;
mod line;
