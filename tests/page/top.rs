//! `sluicegate top` in a pseudo-terminal.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use sluicegate::observe::{Keys, serve_page};

use crate::support::{queue, until};

struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    seen: Arc<Mutex<(vt100::Parser, Vec<u8>)>>,
}

impl Terminal {
    fn start(arguments: &[&str], (rows, cols): (u16, u16), environment: &[(&str, &str)]) -> Self {
        let pair = native_pty_system()
            .openpty(size(rows, cols))
            .expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("it starts");
        let mut output = pair.master.try_clone_reader().expect("a reader");
        let keys = pair.master.take_writer().expect("a writer");
        let seen = Arc::new(Mutex::new((vt100::Parser::new(rows, cols, 0), Vec::new())));
        let screen = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                let mut seen = screen.lock().expect("no test panics with it");
                seen.0.process(&buffer[..read]);
                seen.1.extend_from_slice(&buffer[..read]);
            }
        });
        Self {
            master: pair.master,
            keys,
            child,
            seen,
        }
    }

    fn text(&self) -> String {
        self.seen
            .lock()
            .expect("no test panics with it")
            .0
            .screen()
            .contents()
    }

    fn raw(&self) -> Vec<u8> {
        self.seen.lock().expect("no test panics with it").1.clone()
    }

    #[track_caller]
    fn shows(&mut self, part: &str) {
        until(part, || {
            let text = self.text();
            if !text.contains(part) && self.ended().is_some() {
                panic!("it ended, showing:\n{text}");
            }
            text.contains(part).then_some(())
        });
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads keys");
        self.keys.flush().expect("it reads keys");
    }

    fn resize(&mut self, rows: u16, cols: u16) {
        let mut seen = self.seen.lock().expect("no test panics with it");
        seen.0.screen_mut().set_size(rows, cols);
        drop(seen);
        self.master.resize(size(rows, cols)).expect("it has a size");
    }

    fn ended(&mut self) -> Option<u32> {
        let status = self.child.try_wait().expect("it can be asked");
        status.map(|status| status.exit_code())
    }

    #[track_caller]
    fn ends_with(&mut self, code: u32) {
        let ended = until("it ends", || self.ended());
        assert_eq!(ended, code, "{}", self.text());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const fn size(rows: u16, cols: u16) -> PtySize {
    PtySize {
        rows,
        cols,
        pixel_width: 0,
        pixel_height: 0,
    }
}

/// Whether the terminal was ever told a colour.
fn has_colour(raw: &[u8]) -> bool {
    let text = String::from_utf8_lossy(raw);
    let mut codes = text
        .split("\x1B[")
        .skip(1)
        .filter_map(|rest| rest.split_once('m'))
        .map(|(codes, _)| codes);
    codes.any(|codes| {
        let all_digits = codes
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b';');
        all_digits
            && codes
                .split(';')
                .any(|code| matches!(code.parse(), Ok(30..=38 | 40..=48 | 90..=107)))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_shows_follows_resizes_and_quits() {
    let (tx, _rx) = queue("watched in a terminal", 50);
    let (other, _out) = queue("watched too", 7);
    other.try_send(1).expect("room");
    let served = serve_page("127.0.0.1:0", Keys::Cut)
        .await
        .expect("a free port");
    let url = format!("http://{}", served.addr());
    tokio::task::spawn_blocking(move || {
        let options = [
            "top",
            "--url",
            &url,
            "--every",
            "100ms",
            "--queue",
            "watched in a terminal",
        ];
        let mut terminal = Terminal::start(&options, (30, 120), &[]);
        terminal.shows("depth 0 of 50");
        terminal.shows("● healthy");
        for n in 0..45 {
            let _ = tx.try_send(n);
        }
        terminal.shows("▲ elevated");
        terminal.shows("depth 40 of 50");
        assert!(has_colour(&terminal.raw()));
        for (rows, cols) in [
            (6, 20),
            (1, 1),
            (2, 200),
            (60, 12),
            (24, 80),
            (120, 300),
            (6, 20),
        ] {
            terminal.resize(rows, cols);
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert_eq!(terminal.ended(), None, "{cols} x {rows}");
        }
        terminal.shows("elevated");
        terminal.resize(30, 120);
        terminal.shows("depth 40 of 50");
        // Round all queues, to the other one.
        until("the other queue", || {
            terminal.press("\t");
            std::thread::sleep(std::time::Duration::from_millis(300));
            terminal.text().contains("depth 1 of 7").then_some(())
        });
        terminal.press(" ");
        terminal.shows("held");
        terminal.press("q");
        terminal.ends_with(0);
        let seen = terminal.seen.lock().expect("no test panics with it");
        assert!(
            !seen.0.screen().alternate_screen() && !seen.0.screen().hide_cursor(),
            "the screen is as it was"
        );
    })
    .await
    .expect("it passes");
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_colour_it_says_the_same_and_names_do_nothing_to_the_terminal() {
    let (tx, _rx) = queue("\u{1B}]0;owned\u{7}\u{1B}[2Jname\u{202e}", 9);
    tx.control().pause("\u{1B}[31mwhy\u{9b}2J");
    let served = serve_page("127.0.0.1:0", Keys::Cut)
        .await
        .expect("a free port");
    let url = format!("http://{}/", served.addr());
    tokio::task::spawn_blocking(move || {
        let name = "\u{1B}]0;owned\u{7}\u{1B}[2Jname\u{202e}";
        let options = ["top", "--url", &url, "--every", "100ms", "--queue", name];
        let mut terminal = Terminal::start(&options, (24, 100), &[("NO_COLOR", "1")]);
        terminal.shows("depth 0 of 9");
        terminal.shows("departures are held: ");
        let raw = terminal.raw();
        assert!(!has_colour(&raw));
        for part in ["]0;owned\u{7}", "\u{1B}[31m", "\u{202e}", "\u{9b}"] {
            assert!(!String::from_utf8_lossy(&raw).contains(part), "{part:?}");
        }
        terminal.press("\u{3}");
        terminal.ends_with(0);
    })
    .await
    .expect("it passes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_survives_its_server() {
    let (tx, _rx) = queue("survived", 9);
    let served = serve_page("127.0.0.1:0", Keys::Cut)
        .await
        .expect("a free port");
    let addr = served.addr();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let url = format!("http://{addr}");
        let options = [
            "top", "--url", &url, "--every", "100ms", "--queue", "survived",
        ];
        let mut terminal = Terminal::start(&options, (24, 100), &[]);
        terminal.shows("depth 0 of 9");
        drop(served);
        terminal.shows("lost for ");
        terminal.shows("depth 0 of 9");
        tx.try_send(1).expect("room");
        let _served = until("the port is free again", || {
            runtime.block_on(serve_page(addr, Keys::Cut)).ok()
        });
        terminal.shows("depth 1 of 9");
        assert!(!terminal.text().contains("lost for "));
        terminal.press("\u{1B}");
        terminal.ends_with(0);
    })
    .await
    .expect("it passes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_snapshot_is_said_so_before_the_screen_is_taken() {
    let app = axum::Router::new()
        .route(
            "/a/snapshot.json",
            axum::routing::get(|| async { "<html>" }),
        )
        .route(
            "/b/snapshot.json",
            axum::routing::get(|| async { "{\"status\":\"ok\"}" }),
        )
        .route(
            "/c/snapshot.json",
            axum::routing::get(|| async { "{\"queues\":[{\"depth\":\"many\"}]}" }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    tokio::task::spawn_blocking(move || {
        for (url, part) in [
            (format!("http://{addr}/a"), "is no snapshot"),
            (format!("http://{addr}/b/"), "no list of queues"),
            (format!("http://{addr}/c/snapshot.json"), "is no snapshot"),
            (format!("http://{addr}/d"), "404"),
            ("http://127.0.0.1:1".to_owned(), "nobody answers"),
            ("https://127.0.0.1".to_owned(), "https is not spoken"),
            ("ftp://x".to_owned(), "http://"),
            ("not a url".to_owned(), "http://127.0.0.1:7878"),
        ] {
            let mut terminal = Terminal::start(&["top", "--url", &url], (24, 200), &[]);
            terminal.ends_with(2);
            until(part, || terminal.text().contains(part).then_some(()));
            assert!(
                !terminal.raw().windows(8).any(|part| part == b"\x1B[?1049h"),
                "{url}"
            );
        }
    })
    .await
    .expect("it passes");
}
