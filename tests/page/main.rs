//! The live page in a real browser, what it is served with, and the same for a terminal.

mod browser;
mod live;
mod router;
mod support;
#[cfg(feature = "cli")]
mod top;
