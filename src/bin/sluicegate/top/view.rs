//! The whole screen, on whatever size there is: what matters most comes first, and what has no room is left out.

use std::time::Instant;

use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use sluicegate::observe::{QueueView, Snapshot};
use sluicegate::queue::Pressure;

use super::numbers::clean;
use super::panels;

/// What is on the screen.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) snapshot: Snapshot,
    queue: Option<String>,
    taken: Instant,
    pub(super) trouble: Option<String>,
    pub(super) is_held: bool,
}

impl Shown {
    pub(super) fn new(snapshot: Snapshot, queue: Option<&str>) -> Self {
        Self {
            snapshot,
            queue: queue.map(str::to_owned),
            taken: Instant::now(),
            trouble: None,
            is_held: false,
        }
    }

    pub(super) fn take(&mut self, snapshot: Snapshot, now: Instant) {
        (self.snapshot, self.taken, self.trouble) = (snapshot, now, None);
    }

    fn index(&self) -> usize {
        let mut queues = self.snapshot.queues.iter();
        let wanted = |queue: &QueueView| Some(&queue.name) == self.queue.as_ref();
        queues.position(wanted).unwrap_or(0)
    }

    /// The queue that is looked at: the one chosen, as long as it lives.
    pub(super) fn current(&self) -> Option<&QueueView> {
        self.snapshot.queues.get(self.index())
    }

    pub(super) fn step(&mut self, by: isize) {
        let count = self.snapshot.queues.len() as isize;
        if count > 0 {
            let next = (self.index() as isize + by).rem_euclid(count);
            self.queue = Some(self.snapshot.queues[next as usize].name.clone());
        }
    }
}

/// How things are set off: in colours, or without them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ink {
    coloured: bool,
}

impl Ink {
    pub(super) fn of_the_environment() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            coloured: !unwanted && !dumb,
        }
    }

    pub(super) const fn plain() -> Self {
        Self { coloured: false }
    }

    pub(super) const fn colour(self, colour: Color) -> Style {
        if self.coloured {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    pub(super) const fn soft(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) const fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) const fn state(self, pressure: Pressure) -> Style {
        let colour = match pressure {
            Pressure::Healthy => Color::Green,
            Pressure::Elevated => Color::Yellow,
            Pressure::Overloaded => Color::Red,
        };
        self.colour(colour).add_modifier(Modifier::BOLD)
    }
}

/// A shape for each state, for eyes and terminals without colours.
pub(super) const fn mark(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::Healthy => "●",
        Pressure::Elevated => "▲",
        Pressure::Overloaded => "■",
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown, ink: Ink) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(u16::from(frame.area().height > 8)),
    ])
    .areas(frame.area());
    frame.render_widget(title(shown, ink, head.width), head);
    match shown.current() {
        Some(queue) => panels::draw(frame, body, queue, &shown.snapshot, ink),
        None if shown.snapshot.limiters.is_empty() => {
            let text = "no queue is alive and no limiter is watched";
            frame.render_widget(Paragraph::new(text), body);
        }
        None => panels::edge(frame, body, &shown.snapshot, ink),
    }
    let keys = " q quit   tab next queue   space hold";
    frame.render_widget(Paragraph::new(keys).style(ink.soft()), foot);
}

/// What went wrong if something did; else the queues, the current one among those that fit.
fn title(shown: &Shown, ink: Ink, width: u16) -> Line<'static> {
    if let Some(trouble) = &shown.trouble {
        let old = shown.taken.elapsed().as_secs();
        let text = format!("lost for {old} s: {}", clean(trouble));
        return Line::styled(
            text,
            ink.colour(Color::Red).add_modifier(Modifier::REVERSED),
        );
    }
    let mut spans = vec![Span::styled(
        if shown.is_held { "held " } else { "live " },
        ink.soft(),
    )];
    let queues = &shown.snapshot.queues;
    let current = shown.index();
    // As many before the current one as leave it in sight.
    let fits = (usize::from(width) / 24).max(1);
    let first = current.saturating_sub(fits.saturating_sub(1) / 2);
    if first > 0 {
        spans.push(Span::raw("… "));
    }
    for (index, queue) in queues.iter().enumerate().skip(first).take(fits + 2) {
        let style = match index == current {
            true => Ink::bold().add_modifier(Modifier::UNDERLINED),
            false => ink.soft(),
        };
        spans.push(Span::styled(
            mark(queue.pressure),
            ink.state(queue.pressure),
        ));
        spans.push(Span::raw(" "));
        let name: String = clean(&queue.name).chars().take(24).collect();
        spans.push(Span::styled(name, style));
        spans.push(Span::raw("  "));
    }
    if queues.len() > first + fits + 2 {
        spans.push(Span::raw("…"));
    }
    Line::from(spans)
}

/// One screen without a terminal.
pub(super) fn as_text(shown: &Shown, width: u16, height: u16) -> String {
    let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw(frame, shown, Ink::plain()));
    let buffer = terminal.backend().buffer();
    let area = Rect::new(0, 0, width, height.saturating_sub(1));
    let mut text = String::new();
    for y in 0..area.height {
        let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that can be shown, with the largest numbers and names that do harm.
    fn crowded() -> Snapshot {
        let ledger = r#"{"offered":18446744073709551615,"acked":7,"queued":3}"#;
        let point = |at: u32| {
            format!(r#"{{"at_seconds":{at},"offered":{at},"depth":18446744073709551615}}"#)
        };
        let trend: Vec<String> = (0..300).map(point).collect();
        let tenants: Vec<String> = (0..20)
            .map(|n| format!(r#"{{"key":"\u001b[2J{n}","ledger":{ledger}}}"#))
            .collect();
        let json = format!(
            r#"{{"queues":[{{"name":"a\u202e","paused":"\u001b]0;x\u0007","depth":18446744073709551615,"max_depth":1,
            "flows":[{{"over_seconds":10,"offered":1e308,"refused":1e308}}],"lanes":[{{"priority":"low","ledger":{ledger}}}],
            "tenants":[{}],"tenants_known":9,"other_tenants":{ledger},"trend":[{}]}},{{"name":"b"}}],
            "limiters":[{{"name":"edge","levels":[{{"name":"l","limit":"sliding_log 1 per 1s","shared":true,"usage":0.5}}],
            "top_refused":[{{"level":"l","keys":[{{"key":"k","guaranteed":5}}]}}]}}],"advice":[{{"name":"a","reason":"{}"}}]}}"#,
            tenants.join(","),
            trend.join(","),
            "r".repeat(900),
        );
        Snapshot::from_json(&json).expect("it is a snapshot")
    }

    #[test]
    fn any_size_is_drawn_without_control_characters() {
        let mut shown = Shown::new(crowded(), None);
        for width in (1..30).chain([80, 89, 90, 100, 300]) {
            for height in (1..20).chain([60, 200]) {
                let text = as_text(&shown, width, height);
                let harm =
                    |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
                assert!(!text.contains(harm), "{width} x {height}: {text:?}");
            }
        }
        shown.trouble = Some("gone".into());
        assert!(as_text(&shown, 20, 6).contains(" s: gone"));
        shown.step(1);
        assert_eq!(shown.current().map(|queue| queue.name.as_str()), Some("b"));
        shown.step(1);
        assert_eq!(shown.current().map(|queue| queue.max_depth), Some(1));
        shown.take(Snapshot::default(), Instant::now());
        assert!(as_text(&shown, 60, 6).contains("no queue is alive"));
    }

    #[test]
    fn a_tiny_screen_has_the_state_and_the_depth() {
        let text = as_text(&Shown::new(crowded(), None), 20, 6);
        assert!(
            text.contains("● healthy") && text.contains("depth"),
            "{text}"
        );
    }
}
