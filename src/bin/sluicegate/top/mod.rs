//! `sluicegate top`: the live page for a terminal.
//!
//! One thread asks for the snapshot, this one draws and listens to keys: a server that hangs delays neither.

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sluicegate::observe::Snapshot;

use crate::values::span;
use client::{Address, Trouble, ask};
use view::{Ink, Shown};

mod client;
mod numbers;
mod panels;
mod view;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where the live page is, like "http://127.0.0.1:7878"
    #[arg(long, value_name = "URL")]
    url: Address,
    /// Time between two looks, from 100ms up
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    every: Duration,
    /// The queue to begin with
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Print one screen as text and end
    #[arg(long)]
    once: bool,
}

type Answer = Result<Snapshot, Trouble>;

pub(crate) fn run(options: &Options) -> Result<String, String> {
    let every = options.every.clamp(SHORTEST, LONGEST);
    // The first look says whether there is anything to see, while the screen is still the shell's.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let first = runtime
        .block_on(ask(&options.url))
        .map_err(|trouble| format!("{}: {trouble}", options.url))?;
    let mut screen = Screen {
        shown: Shown::new(first, options.queue.as_deref()),
        ink: Ink::of_the_environment(),
    };
    if options.once {
        return Ok(view::as_text(&screen.shown, ONCE_WIDTH, ONCE_HEIGHT));
    }
    if !stdout().is_terminal() {
        return Err("top draws on a terminal; --once prints a screen as text".into());
    }
    let (answers, arriving) = channel();
    let url = options.url.clone();
    std::thread::spawn(move || runtime.block_on(look(url, every, answers)));
    let mut terminal = ratatui::try_init().map_err(|error| format!("no terminal: {error}"))?;
    let ended = screen.follow(&mut terminal, &arriving);
    ratatui::restore();
    ended.map(|()| String::new())
}

/// Asks for ever, until nobody listens.
async fn look(url: Address, every: Duration, answers: Sender<Answer>) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        if answers.send(ask(&url).await).is_err() {
            return;
        }
    }
}

struct Screen {
    shown: Shown,
    ink: Ink,
}

impl Screen {
    fn follow(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        arriving: &Receiver<Answer>,
    ) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("the terminal is gone: {error}");
        loop {
            terminal
                .draw(|frame| view::draw(frame, &self.shown, self.ink))
                .map_err(wrong)?;
            match arriving.recv_timeout(GLANCE) {
                Ok(Ok(_)) if self.shown.is_held => self.shown.trouble = None,
                Ok(Ok(snapshot)) => self.shown.take(snapshot, Instant::now()),
                Ok(Err(trouble)) => self.shown.trouble = Some(trouble.to_string()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the watch ended".into()),
            }
            // Everything that was typed meanwhile; a resize only needs the next drawing.
            while event::poll(Duration::ZERO).map_err(wrong)? {
                if let Event::Key(key) = event::read().map_err(wrong)?
                    && key.kind != KeyEventKind::Release
                    && self.press(key)
                {
                    return Ok(());
                }
            }
        }
    }

    /// What a key does; whether it ends the watch.
    fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Tab | KeyCode::Right | KeyCode::Down => self.shown.step(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Up => self.shown.step(-1),
            KeyCode::Char(' ') => self.shown.is_held = !self.shown.is_held,
            _ => {}
        }
        false
    }
}

/// Keys are answered within this.
const GLANCE: Duration = Duration::from_millis(50);
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3600);
const ONCE_WIDTH: u16 = 100;
const ONCE_HEIGHT: u16 = 40;
