//! Workers: what handlers return, how they end, and that nothing is lost.

mod outcomes;
mod shutdown;
mod storm;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts who is inside at the same time.
#[derive(Clone, Default)]
struct Inside(Arc<(AtomicUsize, AtomicUsize)>);

impl Inside {
    fn enter(&self) -> Guard {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Guard(self.clone())
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

struct Guard(Inside);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A panic that the hook does not print.
fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}
