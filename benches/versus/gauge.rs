//! What a row is, and how it is run and shown.

use crate::quiet;

/// Arguments of the command line.
pub(crate) struct Options {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    row: Option<String>,
}

impl Options {
    pub(crate) fn from_args() -> Self {
        let mut options = Self {
            json: false,
            quick: false,
            row: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.json = true,
                "--quick" => options.quick = true,
                "--row" => options.row = args.next(),
                // What cargo itself passes.
                "--bench" => {}
                other => {
                    eprintln!(
                        "unknown argument {other:?}; there are --json, --quick and --row NAME"
                    );
                    std::process::exit(2);
                }
            }
        }
        options
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.row
            .as_ref()
            .is_none_or(|row| name.contains(row.as_str()))
    }

    fn repetitions(&self) -> usize {
        if self.quick { 1 } else { 5 }
    }
}

/// Does the work once, at a length from 0 to 1, and returns its figure.
pub(crate) type Work = Box<dyn Fn(f64) -> f64>;

/// One row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Whether a larger figure is the better one.
    pub(crate) more_is_better: bool,
    /// Ratio that is aimed at, above 1 = we are better; 0 = none.
    pub(crate) target: f64,
    pub(crate) ours: Work,
    pub(crate) peers: Vec<(&'static str, Work)>,
}

impl Row {
    pub(crate) fn run(&self, options: &Options) {
        let length = if options.quick { 0.1 } else { 1.0 };
        let mut ours = Vec::new();
        let mut peers = vec![Vec::new(); self.peers.len()];
        let mut noisy = 0;
        for _ in 0..options.repetitions() {
            noisy += usize::from(!options.quick && !quiet::wait());
            ours.push((self.ours)(length));
            for (figures, (_, work)) in peers.iter_mut().zip(&self.peers) {
                figures.push(work(length));
            }
        }
        let ratio = |ours: f64, peer: f64| {
            if self.more_is_better {
                ours / peer
            } else {
                peer / ours
            }
        };
        let worst_for_us = |a: &f64, b: &f64| a.total_cmp(b);
        let medians: Vec<f64> = peers.iter().map(|figures| median(figures)).collect();
        let best = (0..peers.len())
            .min_by(|a, b| worst_for_us(&ratio(1.0, medians[*a]), &ratio(1.0, medians[*b])));
        let mine = median(&ours);
        let (name, peer, ratios) = match best {
            Some(best) => {
                let pairs = ours
                    .iter()
                    .zip(&peers[best])
                    .map(|(ours, peer)| ratio(*ours, *peer));
                (self.peers[best].0, medians[best], pairs.collect())
            }
            None => ("", f64::NAN, vec![mine]),
        };
        let ratio = median(&ratios);
        if options.json {
            let line = serde_json::json!({
                "work": self.name, "ours": mine, "peer": peer, "peer_name": name,
                "ratio": ratio, "unit": self.unit, "target": self.target,
            });
            println!("{line}");
            return;
        }
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let note = if noisy > 0 {
            format!(" ({noisy} of {} runs not quiet)", ours.len())
        } else {
            String::new()
        };
        let aim = match self.target {
            0.0 => "-".into(),
            target => format!("{target:.2}"),
        };
        println!(
            "| {} | {} | {} | {} | {name} | {ratio:.2} | {low:.2} to {high:.2}{note} | {aim} |",
            self.name,
            self.unit,
            figure(mine),
            figure(peer),
        );
    }
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn figure(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".into(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}
