//! `sluicegate check`: is a configuration right, and what does it come to.

use std::path::PathBuf;

use clap::Args;
use sluicegate::config::Config;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The configuration
    file: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<String, String> {
    load(&options.file).map(|config| config.to_string())
}

/// Reads a configuration; an error names the file, the line and the column.
pub(crate) fn load(path: &std::path::Path) -> Result<Config, String> {
    let name = path.display();
    Config::load(path).map_err(|error| match error.line() {
        Some(_) => format!("{name}: {error}"),
        None => format!("{name} {error}"),
    })
}
