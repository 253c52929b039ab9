//! Four lanes at a service that is offered more than it takes, with and without a share for the least urgent.
//!
//! A service takes 100 jobs in a second and is offered 115: 60 critical ones, and less of each other lane. The more
//! urgent leave first, but jobs that wait long enough age past them: the lowest lane waits at most four times the time
//! in which a full queue drains, and its own turn. With a reserved share it moves all the time, and the lanes above wait
//! the longer. Where the queue is full, eviction by priority makes the less urgent pay.
//!
//! Look at the longest wait of the low lane, and at who was evicted. Time is virtual, and every run prints the same.
//!
//! ```sh
//! cargo run --release --example priorities
//! ```

use std::process::ExitCode;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{BuildError, Builder, Control, Priority, WhenFull};
use tokio::time::{Instant, interval};

use chart::{Colour, Timeline, brief, paint, percentile, strip, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// What came of one run.
struct Played {
    control: Control,
    waits: [Vec<Duration>; 4],
    starts: [Timeline; 4],
}

async fn play(builder: Builder, run: Duration) -> Result<Played, BuildError> {
    let (tx, rx) = builder.build()?;
    let end = Instant::now() + run;
    for (number, lane) in Priority::ALL.into_iter().enumerate() {
        let tx = tx.clone();
        tokio::spawn(async move {
            let mut ticks = interval(EVERY[number]);
            while ticks.tick().await < end {
                // Who is refused goes away; the ledger has it.
                let _ = tx.offer(number).priority(lane).try_send();
            }
        });
    }
    let mut played = Played {
        control: tx.control(),
        waits: Default::default(),
        starts: std::array::from_fn(|_| Timeline::new(run / 60)),
    };
    drop(tx);
    let start = Instant::now();
    while let Ok(Some(job)) = tokio::time::timeout_at(end, rx.recv()).await {
        played.waits[*job].push(job.waited());
        played.starts[*job].add(start.elapsed());
        job.ack();
    }
    for lane in 0..4 {
        played.waits[lane].sort();
        played.starts[lane].end_at(run);
    }
    Ok(played)
}

impl Played {
    fn longest(&self, lane: usize) -> Duration {
        self.waits[lane].last().copied().unwrap_or_default()
    }

    fn report(&self, run: Duration) -> String {
        let head = [
            "",
            "started/s",
            "refused",
            "evicted",
            "median wait",
            "longest wait",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        let ledgers = self.control.ledgers();
        let mut strips = String::new();
        for (number, lane) in Priority::ALL.into_iter().enumerate().rev() {
            let (waits, ledger) = (&self.waits[number], ledgers.lanes[&lane]);
            rows.push([
                lane.as_str().to_owned(),
                format!("{:.1}", waits.len() as f64 / run.as_secs_f64()),
                thousands(ledger.refused),
                thousands(ledger.evicted),
                percentile(waits, 0.5).map_or("-".into(), brief),
                brief(self.longest(number)),
            ]);
            let starts = self.starts[number].columns(1);
            let most = starts.iter().copied().fold(0.0, f64::max);
            let name = if lane == Priority::Critical {
                "crit"
            } else {
                lane.as_str()
            };
            strips += &strip(name, &starts, most);
        }
        format!(
            "{}\nstarts over time, each lane on its own scale\n{strips}",
            table(&rows)
        )
    }
}

fn perform(run: Duration) -> Result<[Played; 3], Box<dyn std::error::Error>> {
    let virtual_time = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    };
    let builder = Builder::new(Rate::per_second(RATE)).max_depth(DEPTH);
    let plain = virtual_time()?.block_on(play(builder.clone(), run))?;
    let shared = builder.clone().lane_share(Priority::Low, 0.1);
    let shared = virtual_time()?.block_on(play(shared, run))?;
    let evicting = builder.when_full(WhenFull::EvictLower);
    let evicting = virtual_time()?.block_on(play(evicting, run))?;
    Ok([plain, shared, evicting])
}

fn main() -> ExitCode {
    let is_brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let run = Duration::from_secs(if is_brief { 30 } else { 120 });
    let [plain, shared, evicting] = match perform(run) {
        Ok(played) => played,
        Err(error) => {
            eprintln!("priorities: {error}");
            return ExitCode::FAILURE;
        }
    };
    let drains = Duration::from_secs(DEPTH / RATE);
    println!("{RATE} jobs/s, {DEPTH} may be queued: a full queue drains in {drains:?}; {run:?}\n");
    println!("{}", paint("plain lanes", Colour::Green));
    println!("{}", plain.report(run));
    println!(
        "{}",
        paint("a tenth of the departures reserved for low", Colour::Green)
    );
    println!("{}", shared.report(run));
    println!(
        "{}",
        paint("when full, whoever is less urgent pays", Colour::Green)
    );
    print!("{}", evicting.report(run));
    let ledgers = evicting.control.ledgers();
    let spared = ledgers.lanes[&Priority::Critical].evicted == 0;
    let made = plain.longest(0) <= drains * 5 + Duration::from_millis(100)
        && shared.longest(0) * 4 < plain.longest(0)
        && ledgers.lanes[&Priority::Low].evicted > 0
        && spared;
    if made {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const RATE: u64 = 100;
const DEPTH: u64 = 300;
/// Time between two offers, least urgent lane first.
const EVERY: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(50),
    Duration::from_millis(40),
    Duration::from_micros(16_667),
];
