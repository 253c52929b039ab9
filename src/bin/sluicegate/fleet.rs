//! A fleet on paper: the limits of the edge shared by leases.

use sluicegate::Limit;
use sluicegate::config::Config;
use sluicegate::sim::{Fleet, Shares};

use crate::arrivals::{Broken, Source};
use crate::table::{aligned, thousands};

/// What one level came to.
pub(crate) struct Shared {
    pub(crate) level: String,
    pub(crate) nodes: u64,
    pub(crate) lease: u64,
    pub(crate) shares: Shares,
}

pub(crate) fn run(
    nodes: u64,
    lease: Option<u64>,
    config: &Config,
    source: &Source,
) -> Result<Vec<Shared>, String> {
    let mut all = Vec::new();
    for level in config.levels().iter().filter(|level| !level.per_key) {
        let Limit::TokenBucket(bucket) = level.limit else {
            continue;
        };
        let lease = lease.unwrap_or_else(|| Fleet::advised_lease(bucket, nodes));
        let mut arrivals = source.open()?;
        let fleet = Fleet::new(bucket, nodes, lease).seed(source.seed);
        let shares = fleet.run(&mut arrivals);
        all.push(Shared {
            level: level.name.to_string(),
            nodes,
            lease,
            shares: shares.map_err(|Broken(message)| message)?,
        });
    }
    if all.is_empty() {
        return Err(
            "--nodes shares token buckets that count everybody, and the configuration has none"
                .into(),
        );
    }
    Ok(all)
}

pub(crate) fn table(all: &[Shared]) -> String {
    let head = [
        "fleet: level",
        "nodes",
        "lease",
        "offered",
        "exact limit",
        "admitted",
        "under",
        "over in any span",
        "bound",
        "leases",
    ];
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|shared| {
            let Shares {
                offered,
                exact,
                admitted,
                most_over,
                bound_over,
                leases,
                ..
            } = shared.shares;
            let under = exact.saturating_sub(admitted) as f64 / exact.max(1) as f64 * 100.0;
            vec![
                shared.level.clone(),
                shared.nodes.to_string(),
                shared.lease.to_string(),
                thousands(offered),
                thousands(exact),
                thousands(admitted),
                format!("{under:.1} %"),
                thousands(most_over),
                thousands(bound_over),
                thousands(leases),
            ]
        })
        .collect();
    format!("\n{}", aligned(&head, &rows))
}
