//! The operations kit in `examples/observability`: rules that fire and stay silent as they should, and a dashboard that
//! names what there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use sluicegate::observe::{self, Kind, Metric};

fn kit(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/observability");
    folder.join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(kit(file)).expect("the kit is there")
}

/// Runs Prometheus' own tool; what it says, unless it is content.
#[track_caller]
fn promtool(arguments: &[&str], input: Stdio) {
    let mut command = Command::new("promtool");
    let output = command
        .args(arguments)
        .current_dir(kit(""))
        .stdin(input)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            panic!("promtool does not run ({error}): install Debian's package prometheus")
        }
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    promtool(
        &["check", "rules", "--lint-fatal", "alerts.yml"],
        Stdio::null(),
    );
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    promtool(&["test", "rules", "alerts_test.yml"], Stdio::null());
    let tests = read("alerts_test.yml");
    for (name, _) in alerts() {
        let case = format!("alertname: {name}\n");
        let cases = tests.split(&case).skip(1);
        let (silent, firing): (Vec<_>, Vec<_>) =
            cases.partition(|case| case.trim_start().starts_with("exp_alerts: []"));
        assert!(
            !firing.is_empty() && !silent.is_empty(),
            "{name} is not tested"
        );
    }
}

#[cfg(feature = "prometheus")]
#[test]
fn promtool_has_no_complaint_about_a_scrape() {
    use std::io::{Seek, Write};
    let _edge = super::limiters::busy_edge("promtool <\"\\\n>");
    let builder = sluicegate::queue::Builder::unpaced().name("promtool");
    let (tx, rx) = builder.build().expect("it is valid");
    tx.try_send(1).expect("there is room");
    rx.try_recv().expect("one is queued").ack();
    let page = observe::prometheus()
        .expect("no other recorder is there")
        .render();
    assert!(page.contains("sluicegate_requests_total{limiter=\"promtool"));
    let path = std::env::temp_dir().join(format!("sluicegate-page-{}", std::process::id()));
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let file = file.as_mut().expect("there is a folder for such files");
    fs::remove_file(&path).expect("it is ours");
    file.write_all(page.as_bytes())
        .expect("there is room on the disk");
    file.rewind().expect("it is a file");
    let input = file.try_clone().expect("it is open");
    promtool(&["check", "metrics"], input.into());
}

/// Each alert and its expression.
fn alerts() -> Vec<(String, String)> {
    let rules = read("alerts.yml");
    let alerts = rules.split("- alert: ").skip(1);
    let alerts: Vec<_> = alerts
        .map(|rule| {
            let (name, rest) = rule.split_once('\n').expect("a rule has more than a name");
            let (_, rest) = rest.split_once("expr:").expect("a rule has an expression");
            let end = rest
                .find("\n        for:")
                .or(rest.find("\n        labels:"));
            let expression = &rest[..end.expect("a rule has labels")];
            (name.to_owned(), expression.replace('|', " "))
        })
        .collect();
    assert!(alerts.len() >= 10, "{alerts:?}");
    alerts
}

/// The metrics that an expression names, each with the labels that it asks of it.
fn metrics(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("sluicegate_") {
        let rest = &expression[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let selectors = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let selectors = selectors.map_or("", |(selectors, _)| selectors);
        let selectors = selectors.split(',').filter(|part| !part.trim().is_empty());
        let labels = selectors.map(|part| {
            let (name, value) = part.split_once('=').expect("a label and its value");
            let value = value.trim_start_matches('~').trim_matches('"');
            (name.trim().to_owned(), value.to_owned())
        });
        found.push((name.to_owned(), labels.collect()));
    }
    assert!(!found.is_empty(), "{expression} names no metric of ours");
    found
}

/// The metric behind a name, that of a histogram's part too.
#[track_caller]
fn known(name: &str) -> &'static Metric {
    let histogram = ["_bucket", "_sum", "_count"];
    let whole = histogram.iter().find_map(|part| name.strip_suffix(part));
    let is_it = |metric: &&Metric| match metric.kind {
        Kind::Histogram => whole == Some(metric.name),
        _ => metric.name == name,
    };
    let found = observe::catalogue().iter().find(is_it);
    found.unwrap_or_else(|| panic!("{name} is not in the catalogue"))
}

/// Every metric of an expression is in the catalogue, with these labels and values.
#[track_caller]
fn check(expression: &str) {
    for (name, labels) in metrics(expression) {
        let metric = known(&name);
        for (label, value) in labels {
            if ["job", "instance", "le"].contains(&label.as_str()) {
                continue;
            }
            let described = metric
                .labels
                .iter()
                .find(|described| described.name == label);
            let described = described.unwrap_or_else(|| panic!("{name} has no label {label}"));
            let is_one = described.values.is_empty() || described.values.contains(&value.as_str());
            assert!(
                is_one || value.starts_with('$'),
                "{name} has no {label}={value}"
            );
        }
    }
}

/// The numbers that an expression compares with.
fn thresholds(expression: &str) -> BTreeSet<String> {
    let parts = expression.split("> ").skip(1);
    let numbers = parts.map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != '.');
        let number: f64 = part[..end.unwrap_or(part.len())].parse().expect("a number");
        number.to_string()
    });
    numbers.collect()
}

#[test]
fn alerts_ask_for_what_is_published() {
    for (name, expression) in alerts() {
        check(&expression);
        assert!(name.starts_with("Sluicegate"), "{name}");
    }
}

#[test]
fn every_ratio_asks_for_a_minimum_of_traffic() {
    for (name, expression) in alerts() {
        for (at, _) in expression.match_indices(" / ") {
            // Divisors are guarded: `a / (b > 1)`.
            let divisor = expression[at + 3..].trim_start();
            assert!(divisor.starts_with('('), "{name}");
            let mut open = 0;
            let end = divisor.find(|c| {
                open += i32::from(c == '(') - i32::from(c == ')');
                open == 0
            });
            let divisor = &divisor[..end.expect("it is closed")];
            assert!(divisor.contains(" > "), "{name} divides by {divisor}");
        }
    }
}

/// Whatever lies under such a name, however deep.
fn all<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == name {
                    found.push(value);
                }
                all(value, name, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| all(value, name, found)),
        _ => {}
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana.json")).expect("the dashboard is JSON")
}

#[test]
fn the_dashboard_brings_all_that_grafana_needs_and_nothing_that_is_hard_wired() {
    let dashboard = dashboard();
    assert_eq!(dashboard["id"], Value::Null);
    assert_eq!(dashboard["uid"], "sluicegate");
    assert_eq!(dashboard["editable"], true);
    assert!(dashboard["schemaVersion"].as_u64() >= Some(30));
    assert!(
        dashboard.get("__inputs").is_none(),
        "provisioning leaves those unresolved"
    );
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("it has variables");
    let names: Vec<_> = variables.iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["datasource", "job", "instance", "limiter", "queue"]);
    assert_eq!(variables[0]["type"], "datasource");
    let mut sources = Vec::new();
    all(&dashboard, "datasource", &mut sources);
    let panels = dashboard["panels"].as_array().expect("it has panels");
    assert!(sources.len() > panels.len());
    assert!(
        sources
            .iter()
            .all(|source| source["uid"] == "${datasource}"),
        "{sources:?}"
    );
    let mut ids: Vec<_> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
    for panel in panels {
        let place = &panel["gridPos"];
        let edge = place["x"]
            .as_u64()
            .zip(place["w"].as_u64())
            .map(|(x, w)| x + w);
        assert!(edge.is_some_and(|edge| edge <= 24), "{}", panel["title"]);
    }
}

#[test]
fn the_dashboard_shows_what_is_published_over_intervals_that_fit_the_scrape() {
    let dashboard = dashboard();
    let mut expressions = Vec::new();
    all(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 30);
    for expression in expressions {
        let expression = expression.as_str().expect("an expression is text");
        check(expression);
        for rate in expression.split("rate(").skip(1) {
            assert!(rate.contains("[$__rate_interval]"), "{expression}");
        }
    }
    for variable in dashboard["templating"]["list"]
        .as_array()
        .expect("it has variables")
    {
        if let Some(query) = variable["definition"].as_str() {
            check(query);
        }
    }
}

#[test]
fn the_dashboard_draws_its_lines_where_the_alerts_are() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("it has panels");
    for (name, expression) in alerts() {
        let told = |panel: &&Value| {
            let description = panel["description"].as_str().unwrap_or_default();
            description.contains(&name)
        };
        let panel = panels
            .iter()
            .find(told)
            .unwrap_or_else(|| panic!("no panel shows {name}"));
        let steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array();
        let steps = steps.expect("a panel has thresholds").iter();
        let drawn: Vec<f64> = steps.filter_map(|step| step["value"].as_f64()).collect();
        let alerts = thresholds(&expression);
        match drawn[..] {
            [line] => assert!(
                alerts.contains(&line.to_string()),
                "{name}: {line}, {alerts:?}"
            ),
            [] => assert_eq!(
                name, "SluicegateQueueDrainStalled",
                "it has no line to draw"
            ),
            _ => panic!("{name} has several lines"),
        }
    }
}
