//! Shared limits on Redis beside the least scripts that could do it, on a server of their own, in one run.

#[path = "../versus/gauge.rs"]
mod gauge;
mod ours;
mod peers;
#[path = "../versus/place.rs"]
mod place;
#[path = "../versus/quiet.rs"]
mod quiet;
mod rows;
mod server;

use std::rc::Rc;

use gauge::{Options, Row};
use rows::Bench;
use server::Server;

fn main() {
    let options = Options::from_args();
    let server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            // Named, so that nobody takes an empty table for a good one.
            eprintln!("every row is skipped: {error}");
            return;
        }
    };
    let bench = Rc::new(Bench::new(server));
    let rows: Vec<Row> = rows::rows(&bench)
        .into_iter()
        .filter(|row| options.wants(row.name))
        .collect();
    if rows.is_empty() {
        eprintln!("no row has that in its name");
        drop(rows);
        drop(bench);
        std::process::exit(2);
    }
    if !options.json {
        let place = place::line(&["redis", "tokio"]);
        println!("{place}; {}\n", bench.server.version());
        println!("| work | unit | us | best peer | | ratio | spread | aimed at |");
        println!("|---|---|---|---|---|---|---|---|");
    }
    for row in rows {
        row.run(&options);
    }
}
