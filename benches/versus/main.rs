//! The crate beside its peers, row by row, in one run.

mod calls;
mod checks;
mod gauge;
mod layers;
mod pacing;
mod place;
mod precise;
mod queues;
mod quiet;

use gauge::{Options, Row};

/// Peers whose release is told.
const PEERS: [&str; 10] = [
    "async-channel",
    "crossfire",
    "flume",
    "governor",
    "kanal",
    "leaky-bucket",
    "ratelimit",
    "tokio",
    "tower",
    "tower_governor",
];

fn main() {
    let options = Options::from_args();
    let rows: Vec<Row> = [
        checks::rows(),
        queues::rows(),
        calls::rows(),
        layers::rows(),
        pacing::rows(),
        precise::rows(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let chosen: Vec<Row> = rows
        .into_iter()
        .filter(|row| options.wants(row.name))
        .collect();
    if chosen.is_empty() {
        eprintln!("no row has that in its name");
        std::process::exit(2);
    }
    if !options.json {
        println!("{}\n", place::line(&PEERS));
        println!("| work | unit | us | best peer | | ratio | spread | aimed at |");
        println!("|---|---|---|---|---|---|---|---|");
    }
    for row in chosen {
        row.run(&options);
    }
}
