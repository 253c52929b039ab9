//! Reports for programs.

use serde_json::{Value, json};
use sluicegate::sim::Histogram;

use crate::fleet::Shared;
use crate::simulate::Run;

pub(crate) fn run(run: &Run) -> Value {
    let report = &run.report;
    let outcomes = &report.outcomes;
    let by = |counts: &std::collections::BTreeMap<sluicegate::sim::Refuser, u64>| -> Value {
        let pairs = counts.iter().map(|(by, count)| (by.label(), json!(count)));
        Value::Object(pairs.collect())
    };
    let timeline = &report.timeline;
    let steps: Vec<_> = (timeline.steps().iter())
        .map(|step| {
            json!([
                step.offered,
                step.refused,
                step.started,
                step.good,
                step.depth,
                step.waiting,
                step.in_flight
            ])
        })
        .collect();
    json!({
        "name": run.name,
        "rate": run.rate.map(|rate| rate.to_string()),
        "arrivals": outcomes.total(),
        "outcomes": {
            "served": outcomes.served,
            "late": outcomes.late,
            "refused": by(&outcomes.refused_by),
            "expired": outcomes.expired,
            "evicted": outcomes.evicted,
            "failed": outcomes.failed,
            "unfinished": outcomes.unfinished,
        },
        "offers": report.offers,
        "refusals": by(&report.refusals),
        "timeouts": report.timeouts,
        "wasted": report.wasted,
        "wait_s": times(&report.wait),
        "response_s": times(&report.response),
        "depth": { "mean": report.mean_depth, "max": report.max_depth },
        "in_line_max": report.max_waiting,
        "in_flight_max": report.max_in_flight,
        "goodput_per_s": report.goodput(),
        "arriving_s": report.arriving.as_secs_f64(),
        "total_s": report.total.as_secs_f64(),
        "timeline": {
            "step_s": timeline.width().as_secs_f64(),
            "columns": ["offered", "refused", "started", "good", "depth", "waiting", "in_flight"],
            "steps": steps,
        },
    })
}

pub(crate) fn shares(shared: &Shared) -> Value {
    let shares = &shared.shares;
    json!({
        "level": shared.level,
        "nodes": shared.nodes,
        "lease": shared.lease,
        "offered": shares.offered,
        "exact": shares.exact,
        "admitted": shares.admitted,
        "most_over": shares.most_over,
        "bound_over": shares.bound_over,
        "stranded": shares.stranded,
        "leases": shares.leases,
    })
}

fn times(times: &Histogram) -> Value {
    let quantile = |share| times.quantile(share).as_secs_f64();
    json!({
        "count": times.count(),
        "mean": times.mean().as_secs_f64(),
        "p50": quantile(0.5),
        "p90": quantile(0.9),
        "p99": quantile(0.99),
        "max": times.max().as_secs_f64(),
    })
}
