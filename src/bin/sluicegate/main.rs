//! `sluicegate`: choose the numbers of a queue before production, with the machine that runs in it.
//!
//! Exit code 0 = done, 2 = the input is wrong; nothing is written then.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod arrivals;
mod chart;
mod check;
mod fleet;
mod json;
mod output;
mod simulate;
mod size;
mod svg;
mod table;
mod top;
mod values;

/// Backpressure and admission, on paper.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay arrivals through a configuration, on virtual time
    Simulate(Box<simulate::Options>),
    /// Say which depth, marks and catch-up go with a rate, a demand and a deadline
    Size(Box<size::Options>),
    /// Check a configuration and print what takes effect
    Check(check::Options),
    /// Watch the queues of a running program that serves its live page
    Top(top::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Simulate(options) => simulate::run(&options),
        Command::Size(options) => size::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Top(options) => top::run(&options),
    };
    match done {
        Ok(text) => {
            // Whoever reads may have seen enough: a closed pipe is no error.
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("sluicegate: {message}");
            ExitCode::from(2)
        }
    }
}
