//! The charts and tables that the examples print.

use std::time::Duration;

use drawing::{Timeline, brief, columns, percentile, strip, table, thousands};

#[path = "../../examples/support/chart.rs"]
#[allow(dead_code, reason = "what needs a terminal is not called here")]
mod drawing;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn columns_are_drawn_in_eighths_and_anything_above_zero_shows() {
    let text = columns(&[0.0, 0.01, 1.0, 1.5, 2.0], 2.0, 2, SECOND);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "      2 ┤   ▄█");
    assert_eq!(lines[1], "      0 ┤ ▁███");
    assert_eq!(lines[2], "        └┬────");
    assert_eq!(lines[3], "         0s");
}

#[test]
fn every_line_fits_eighty_columns() {
    for steps in [1, 5, 67, 68, 69, 600, 12_345] {
        let mut timeline = Timeline::new(Duration::from_millis(100));
        for step in 0..steps {
            timeline.add(Duration::from_millis(100 * step));
        }
        let per_column = timeline.steps_per_column();
        let values = timeline.columns(per_column);
        let step = Duration::from_millis(100) * per_column as u32;
        let text = columns(&values, 1.0, 4, step) + &strip("failed", &values, 1.0);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{steps} steps: {line}");
        }
    }
}

#[test]
fn an_empty_run_still_gives_a_chart() {
    let timeline = Timeline::new(SECOND);
    assert_eq!(timeline.columns(timeline.steps_per_column()), [0.0; 0]);
    assert_eq!(columns(&[], 0.0, 1, SECOND).lines().count(), 3);
    assert_eq!(strip("failed", &[0.0], 0.0), " failed  none\n");
    assert_eq!(
        strip("failed", &[0.0, 0.1, 4.0, 8.0], 8.0),
        " failed  ·▁▄█\n"
    );
    assert_eq!(percentile(&[], 0.5), None);
}

#[test]
fn means_keep_the_unit_when_columns_hold_many_steps() {
    let mut timeline = Timeline::new(SECOND);
    for at in [0, 0, 0, 0, 1, 1, 2, 2] {
        timeline.add(SECOND * at);
    }
    assert_eq!(timeline.counts(), [4, 2, 2]);
    assert_eq!(timeline.columns(2), [3.0, 2.0]);
    timeline.end_at(SECOND * 5 / 2);
    assert_eq!(timeline.counts(), [4, 2, 2]);
    timeline.end_at(SECOND * 4);
    assert_eq!(timeline.counts(), [4, 2, 2, 0]);
}

#[test]
fn percentiles_are_of_the_nearest_rank() {
    let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();
    for (share, millis) in [(0.0, 1), (0.5, 100), (0.99, 198), (1.0, 200)] {
        assert_eq!(
            percentile(&sorted, share),
            Some(Duration::from_millis(millis))
        );
    }
}

#[test]
fn tables_align_and_numbers_read() {
    let rows = [["", "a"], ["über", "1"], ["x", "1,000"]].map(|row| row.map(str::to_owned));
    assert_eq!(
        table(&rows),
        "           a\n────────────\nüber       1\nx      1,000\n"
    );
    assert_eq!(
        thousands(0) + &thousands(999) + &thousands(1_234_567),
        "09991,234,567"
    );
    let shown = [1_234, 12_345, 1_234_567].map(|micros| brief(Duration::from_micros(micros)));
    assert_eq!(shown, ["1.2 ms", "12 ms", "1.23 s"]);
}
