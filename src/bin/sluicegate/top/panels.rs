//! The panels of the screen: numbers, charts, tables.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table, Wrap};
use sluicegate::observe::{Flow, QueuePoint, QueueView, Snapshot};
use sluicegate::queue::{Health, Ledger, Pressure};

use super::numbers::{clean, count, rate, share, time};
use super::view::{Ink, mark};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, queue: &QueueView, all: &Snapshot, ink: Ink) {
    let numbers = numbers(queue, ink, area.width);
    let height = numbers.len() as u16;
    let charts = match area.height.saturating_sub(height) {
        ..4 => 0,
        4..16 => 4,
        _ => 7,
    };
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(height),
        Constraint::Length(charts),
        Constraint::Min(0),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(numbers), top);
    if charts > 0 {
        draw_charts(frame, middle, queue, ink);
    }
    if bottom.height > 2 {
        draw_tables(frame, bottom, queue, all, ink);
    }
}

fn flow(queue: &QueueView) -> Flow {
    let ten = |flow: &&Flow| (5..30).contains(&flow.over.as_secs());
    let flows = &queue.flows;
    *(flows.iter().find(ten).or(flows.first())).unwrap_or(&Flow::default())
}

/// The state and every number, in as many lines as the width asks for.
fn numbers(queue: &QueueView, ink: Ink, width: u16) -> Vec<Line<'static>> {
    let flow = flow(queue);
    let refused = if flow.offered > 0.0 {
        flow.refused / flow.offered
    } else {
        0.0
    };
    let of = |most: Option<u64>| most.map_or(String::new(), |most| format!(" of {}", count(most)));
    let set = queue.rate_now.or(queue.rate);
    let set = set.map_or("no rate".into(), |rate| rate.to_string());
    let mut lines = vec![Line::from(vec![
        Span::styled(
            format!("{} {}", mark(queue.pressure), queue.pressure.as_str()),
            ink.state(queue.pressure),
        ),
        Span::raw(format!(" for {}", time(Some(queue.pressure_for)))),
    ])];
    if let Some(says) = says(queue) {
        lines.push(Line::styled(says, ink.colour(Color::Yellow)));
    }
    let loud = ink.colour(Color::Red);
    let plain = Style::new();
    let items = [
        (
            "depth",
            format!("{}{}", count(queue.depth), of(Some(queue.max_depth))),
            if queue.depth >= queue.high {
                loud
            } else {
                plain
            },
        ),
        ("offered", format!("{}/s", rate(flow.offered)), plain),
        (
            "leaving",
            format!("{}/s ({set})", rate(flow.departed)),
            plain,
        ),
        (
            "refused",
            format!("{}/s {}", rate(flow.refused), share(refused)),
            if flow.refused > 0.0 { loud } else { plain },
        ),
        ("admitted", format!("{}/s", rate(flow.admitted)), plain),
        (
            "in line",
            format!("{}{}", count(queue.waiting), of(Some(queue.max_waiters))),
            plain,
        ),
        (
            "in flight",
            format!("{}{}", count(queue.in_flight), of(queue.max_in_flight)),
            plain,
        ),
        ("wait p50", time(queue.waits.p50), plain),
        ("p90", time(queue.waits.p90), plain),
        ("p99", time(queue.waits.p99), plain),
        ("oldest", time(queue.oldest_wait), plain),
        (
            "marks",
            format!("{}, {}", count(queue.low), count(queue.high)),
            plain,
        ),
        ("dead letters", count(queue.dead_letters), plain),
        (
            "lost",
            count(queue.dead_letters_lost),
            if queue.dead_letters_lost > 0 {
                loud
            } else {
                plain
            },
        ),
    ];
    let cell = (width / (width / CELL).max(1)).max(1);
    let per_line = usize::from((width / CELL).max(1));
    for chunk in items.chunks(per_line) {
        let mut spans = Vec::new();
        for (name, value, style) in chunk {
            let used = name.chars().count() + 1 + value.chars().count();
            spans.push(Span::styled(format!("{name} "), ink.soft()));
            spans.push(Span::styled(value.clone(), style.patch(Ink::bold())));
            spans.push(Span::raw(
                " ".repeat(usize::from(cell).saturating_sub(used).max(1)),
            ));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// What the numbers do not say by themselves.
fn says(queue: &QueueView) -> Option<String> {
    if let Some(why) = &queue.paused {
        return Some(format!("departures are held: {}", clean(why)));
    }
    if queue.health == Health::Red {
        return Some("there is work and nothing starts: consumers are gone, stuck, or hold every place in flight".into());
    }
    if queue.closed {
        return Some("closed: it takes no more offers".into());
    }
    match queue.pressure {
        Pressure::Healthy => None,
        Pressure::Elevated => Some("who cannot wait is refused".into()),
        Pressure::Overloaded => {
            Some("offers are refused at once, and told when to come back".into())
        }
    }
}

/// Curves over time, newest at the right, as many as the width has room for.
fn draw_charts(frame: &mut Frame<'_>, area: Rect, queue: &QueueView, ink: Ink) {
    type Curve = (&'static str, Color, fn(&QueuePoint) -> u64);
    let curves: [Curve; 4] = [
        ("depth", Color::Magenta, |point| point.depth),
        ("offered/s", Color::Blue, |point| point.offered),
        ("refused/s", Color::Red, |point| point.refused),
        ("leaving/s", Color::Green, |point| point.departed),
    ];
    let shown = usize::from(area.width / 24).clamp(1, curves.len());
    let columns = Layout::horizontal(vec![Constraint::Fill(1); shown]).split(area);
    for ((name, colour, value), column) in curves.into_iter().zip(columns.iter()) {
        let values: Vec<u64> = queue.trend.iter().map(value).collect();
        let peak = values.iter().copied().max().unwrap_or(0);
        let block = Block::new().borders(Borders::TOP).border_style(ink.soft());
        let block = block.title(format!("{name}, at most {} ", count(peak)));
        let room = usize::from(column.width.saturating_sub(1));
        let tail = &values[values.len().saturating_sub(room)..];
        // Newest at the right end: what is missing is missing at the left.
        let missing = std::iter::repeat_n(None, room - tail.len());
        let bars: Vec<Option<u64>> = missing.chain(tail.iter().copied().map(Some)).collect();
        let line = Sparkline::default()
            .block(block)
            .data(bars)
            .max(peak.max(1));
        let inner = Rect {
            width: column.width.saturating_sub(1),
            ..*column
        };
        frame.render_widget(line.style(ink.colour(colour)), inner);
    }
}

fn draw_tables(frame: &mut Frame<'_>, area: Rect, queue: &QueueView, all: &Snapshot, ink: Ink) {
    let has_edge = !all.limiters.is_empty() || !all.advice.is_empty();
    if area.width < 90 {
        // Side by side there is no room: the queue's own, and the edge below where lines are left.
        let own = (queue.tenants.len().max(4) as u16 + 3).min(area.height);
        let own = if has_edge && area.height > 14 {
            own.min(area.height / 2)
        } else {
            area.height
        };
        let [top, below] =
            Layout::vertical([Constraint::Length(own), Constraint::Min(0)]).areas(area);
        draw_jobs(frame, top, queue, ink);
        return edge(frame, below, all, ink);
    }
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .spacing(2)
        .areas(area);
    draw_jobs(frame, left, queue, ink);
    if has_edge {
        edge(frame, right, all, ink)
    } else {
        draw_reasons(frame, right, queue, ink)
    }
}

/// Lanes and tenants in one table: they have the same columns.
fn draw_jobs(frame: &mut Frame<'_>, area: Rect, queue: &QueueView, ink: Ink) {
    type Column = (&'static str, fn(&Ledger) -> u64);
    let all: [Column; 5] = [
        ("queued", |ledger| ledger.queued + ledger.reserved),
        ("flying", |ledger| ledger.in_flight),
        ("offered", |ledger| ledger.offered),
        ("done", |ledger| ledger.acked),
        ("refused", |ledger| ledger.refused),
    ];
    let is_narrow = area.width < NAME + 5 * (NUMBER + 1);
    let columns = || {
        all.iter()
            .filter(|(name, _)| !is_narrow || *name != "flying")
    };
    let row = |name: String, ledger: &Ledger| {
        let numbers = columns().map(|(_, value)| format!("{:>8}", count(value(ledger))));
        Row::new(std::iter::once(name).chain(numbers))
    };
    let lanes = queue.lanes.iter().rev();
    let lanes = lanes.filter(|lane| lane.ledger.offered > 0);
    let mut rows: Vec<Row<'_>> = lanes
        .map(|lane| row(format!("lane {}", lane.priority.as_str()), &lane.ledger))
        .collect();
    let tenants = queue.tenants.iter();
    rows.extend(tenants.map(|tenant| row(clean(&tenant.key), &tenant.ledger)));
    if queue.other_tenants.offered > 0 && !queue.tenants.is_empty() {
        let others = queue
            .tenants_known
            .saturating_sub(queue.tenants.len() as u64);
        rows.push(row(
            format!("{} others", count(others)),
            &queue.other_tenants,
        ));
    }
    let widths = std::iter::once(Constraint::Fill(1));
    let widths = widths.chain(columns().map(|_| Constraint::Length(NUMBER)));
    let names = columns().map(|(name, _)| format!("{name:>8}"));
    let head = Row::new(std::iter::once("lane, tenant".to_owned()).chain(names));
    let table = Table::new(rows, widths).header(head.style(ink.soft()));
    frame.render_widget(table.column_spacing(1), area);
}

fn draw_reasons(frame: &mut Frame<'_>, area: Rect, queue: &QueueView, ink: Ink) {
    let rows = queue
        .refused_by_reason
        .iter()
        .map(|(reason, refused)| Row::new([clean(reason).replace('_', " "), count(*refused)]));
    let head = Row::new(["refused", "times"]).style(ink.soft());
    let widths = [Constraint::Length(16), Constraint::Length(12)];
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

/// Levels with their usage, who was refused most, advice.
pub(super) fn edge(frame: &mut Frame<'_>, area: Rect, all: &Snapshot, ink: Ink) {
    let mut lines = Vec::new();
    for limiter in &all.limiters {
        lines.push(Line::styled(
            format!("edge {}", clean(&limiter.name)),
            Ink::bold(),
        ));
        for level in &limiter.levels {
            let limit = level.limit.map_or(String::new(), |limit| limit.to_string());
            let mut text = format!(
                "  {}: {limit}, refused {}",
                clean(&level.name),
                count(level.refused)
            );
            match (level.usage.filter(|_| level.shared), level.keys) {
                (Some(usage), _) => text += &format!(", used {}", share(usage)),
                (None, Some(keys)) => text += &format!(", {} keys", count(keys)),
                (None, None) => {}
            }
            lines.push(Line::raw(text));
        }
        for top in &limiter.top_refused {
            let keys = top
                .keys
                .iter()
                .take(5)
                .map(|key| format!("{} {}", clean(&key.key), count(key.guaranteed)));
            let keys = keys.collect::<Vec<_>>().join("  ");
            if !keys.is_empty() {
                lines.push(Line::styled(
                    format!("  refused most by {}: {keys}", clean(&top.level)),
                    ink.colour(Color::Red),
                ));
            }
        }
    }
    lines.extend(
        all.advice
            .iter()
            .map(|advice| Line::raw(format!("advice: {}", clean_long(&advice.to_string())))),
    );
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Advice is longer than a name.
fn clean_long(text: &str) -> String {
    let letters: Vec<char> = text.chars().take(400).collect();
    letters
        .chunks(100)
        .map(|chunk| clean(&chunk.iter().collect::<String>()))
        .collect()
}

/// Widths of a name and of a number in a table.
const NAME: u16 = 16;
const NUMBER: u16 = 8;
/// Width that a number with its name gets.
const CELL: u16 = 26;
