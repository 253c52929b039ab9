//! How costs grow: of an operation with what the crate holds, and of memory with each thing held.
//!
//! Every line is the best of a few repetitions: what the machine does beside it only ever adds.

mod limiters;
mod queue;
mod table;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

fn main() {
    // `cargo bench -- NAME` shows the tables whose title contains NAME; cargo itself passes `--bench`.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    for (title, print) in limiters::TABLES.into_iter().chain(queue::TABLES) {
        if wanted.is_empty() || wanted.iter().any(|part| title.contains(part.as_str())) {
            println!("\n{title}\n");
            print();
        }
    }
}
