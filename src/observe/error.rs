//! Why metrics cannot be served.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Failure to serve metrics.
#[derive(Debug)]
pub struct ServeError {
    problem: Problem,
}

#[derive(Debug)]
pub(super) enum Problem {
    NotLoopback(SocketAddr),
    NoAddress,
    Bind(Vec<SocketAddr>, io::Error),
    Start(io::Error),
    RecorderTaken,
}

impl ServeError {
    pub(super) const fn new(problem: Problem) -> Self {
        Self { problem }
    }

    /// Whether somebody else listens there already.
    #[must_use]
    pub fn is_addr_in_use(&self) -> bool {
        matches!(&self.problem, Problem::Bind(_, error) if error.kind() == io::ErrorKind::AddrInUse)
    }

    /// Whether the address can be reached from other machines.
    #[must_use]
    pub const fn is_not_loopback(&self) -> bool {
        matches!(self.problem, Problem::NotLoopback(_))
    }

    /// Whether another recorder is installed in this process.
    #[must_use]
    pub const fn is_recorder_taken(&self) -> bool {
        matches!(self.problem, Problem::RecorderTaken)
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::NotLoopback(addr) => {
                write!(f, "{addr} is not a loopback address")
            }
            Problem::NoAddress => f.write_str("the name stands for no address"),
            Problem::Bind(addrs, _) => write!(f, "cannot listen on {addrs:?}"),
            Problem::Start(_) => f.write_str("cannot start the thread that serves metrics"),
            Problem::RecorderTaken => {
                f.write_str("another metrics recorder is installed in this process")
            }
        }
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            Problem::Bind(_, error) | Problem::Start(error) => Some(error),
            Problem::NotLoopback(_) | Problem::NoAddress | Problem::RecorderTaken => None,
        }
    }
}
