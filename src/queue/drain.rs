//! The orderly end of a queue.

use std::mem;
use std::time::Duration;

use super::core::Core;
use super::dead_letters::DeadLetter;
use crate::ledger::Ledger;
use crate::sync::Arc;

/// What a drain came to.
#[derive(Debug)]
pub struct DrainReport<T> {
    /// Jobs that ended while it lasted, those given back not included.
    pub settled: u64,
    /// Jobs still in the hands of consumers; they may yet settle.
    pub in_flight: u64,
    /// Jobs that were queued or delayed at the deadline, oldest first.
    pub returned: Vec<DeadLetter<T>>,
}

pub(crate) async fn run<T>(core: &Arc<Core<T>>, within: Duration) -> DrainReport<T> {
    let ended = core.exact_step(|state, now, after| {
        let ended = settled(&state.machine.ledger());
        state.drains += 1;
        state.machine.drain(now, now + within, &mut after.fx);
        ended
    });
    // From here on the drain is given up if this future is dropped.
    let caller = Caller(core);
    core.drained.cancelled().await;
    let report = core.exact_step(|state, _, _| {
        let ledger = state.machine.ledger();
        DrainReport {
            settled: settled(&ledger) - ended,
            in_flight: ledger.in_flight,
            returned: mem::take(&mut state.returned),
        }
    });
    drop(caller);
    report
}

pub(crate) fn settled(ledger: &Ledger) -> u64 {
    ledger.ended() - ledger.returned
}

struct Caller<'a, T>(&'a Arc<Core<T>>);

impl<T> Drop for Caller<'_, T> {
    fn drop(&mut self) {
        self.0.step(|state, _, after| {
            state.drains -= 1;
            if state.drains == 0 {
                // Nobody is left to report them to; their tickets were told already.
                let unclaimed = mem::take(&mut state.returned);
                after
                    .rare()
                    .letters
                    .extend(unclaimed.into_iter().map(|letter| (letter, None)));
            }
        });
    }
}
