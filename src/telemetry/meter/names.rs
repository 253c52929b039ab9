//! Numbers of endpoints: few, whatever the program names.

use std::collections::HashMap;

use super::OTHER;
use crate::sync::process::{AtomicBool, Mutex};
use crate::sync::{Arc, Ordering};
use crate::telemetry::roll;

/// Endpoints by number. There are at most [`MOST`] of them beside those that are always there.
#[derive(Debug)]
pub(super) struct Names {
    known: Mutex<Known>,
    /// There is no number left, so nobody need look again.
    full: AtomicBool,
}

#[derive(Debug)]
struct Known {
    all: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Names {
    pub(super) fn new() -> Self {
        let mut known = Known {
            all: Vec::new(),
            numbers: HashMap::new(),
        };
        for name in [UNMATCHED_NAME, OTHER] {
            known.add(name);
        }
        Self {
            known: Mutex::new(known),
            full: AtomicBool::new(false),
        }
    }

    /// The number of an endpoint, and its name if that is worth remembering.
    pub(super) fn find(&self, name: &str) -> (u32, Option<Arc<str>>) {
        // Relaxed: seen too late, it costs one more look.
        if self.full.load(Ordering::Relaxed) {
            return (OTHER_NUMBER, None);
        }
        let cleaned = roll::clean(name);
        let mut known = self.known.lock();
        let number = match known.numbers.get(&*cleaned) {
            Some(number) => *number,
            None if known.all.len() < MOST + ALWAYS => known.add(&cleaned),
            None => {
                self.full.store(true, Ordering::Relaxed);
                return (OTHER_NUMBER, None);
            }
        };
        drop(known);
        // Names that are too long are cleaned anew each time, rather than remembered at their length.
        let whole = *cleaned == *name;
        (number, whole.then(|| Arc::from(cleaned)))
    }

    pub(super) fn all(&self) -> Vec<Arc<str>> {
        self.known.lock().all.clone()
    }
}

impl Known {
    fn add(&mut self, name: &str) -> u32 {
        let name: Arc<str> = Arc::from(name);
        let number = self.all.len() as u32;
        self.all.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }
}

const UNMATCHED_NAME: &str = "unmatched";
/// Number of requests without an endpoint.
pub(crate) const UNMATCHED: u32 = 0;
const OTHER_NUMBER: u32 = 1;
/// Endpoints that are always there.
const ALWAYS: usize = 2;
/// Endpoints that are told apart.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_endpoints_are_few_names() {
        let names = Names::new();
        let first = names.find("GET /0").0;
        for n in 1..100_000 {
            let _ = names.find(&format!("GET /{n}"));
        }
        assert_eq!(names.all().len(), MOST + ALWAYS);
        assert_eq!(names.find("GET /99999").0, OTHER_NUMBER);
        assert_eq!(*names.all()[first as usize], *"GET /0");
    }

    #[test]
    fn a_name_breaks_no_line_and_is_short() {
        let names = Names::new();
        let long = format!("GET /\n{}", "x".repeat(64_000));
        let (number, remembered) = names.find(&long);
        assert_eq!(names.find(&long).0, number);
        assert_eq!(remembered, None);
        let name = &names.all()[number as usize];
        assert!(name.starts_with("GET /_xxx") && name.chars().count() == 64);
        assert_eq!(names.find("other").0, OTHER_NUMBER);
        assert_eq!(names.find("unmatched").0, UNMATCHED);
    }
}
