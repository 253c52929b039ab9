//! Numbers before production: the machine of the queue on virtual time, and the formulas that size it.
//!
//! - [`trace`](Trace) arrivals out of a log, a CSV or JSON lines; [`Pattern`] arrivals out of a formula and a seed
//! - [`Simulation`] what is run, [`Report`] what came of it
//! - [`Sizing`] what to set, from formulas; [`Fleet`] one limit shared by many
//!
//! Runs are repeatable: the same arrivals, settings and seed give the same report on every machine.

mod callers;
mod calls;
mod dice;
mod downstream;
mod edge;
mod figures;
mod fleet;
mod generate;
mod histogram;
mod model;
mod report;
mod run;
mod sizing;
mod sizing_trace;
mod theory;
mod timeline;
mod trace;

pub use callers::{Callers, Form, Return};
pub use downstream::{Downstream, Latency, Outage};
pub use edge::Per;
pub use fleet::{Fleet, Shares};
pub use generate::Pattern;
pub use histogram::Histogram;
pub use model::Simulation;
pub use report::{Outcomes, Refuser, Report};
pub use sizing::{Line, Size, Sizing};
pub use timeline::{Step, Timeline};
pub use trace::{Arrival, Bound, Columns, Notes, Trace, TraceError};
