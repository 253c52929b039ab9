//! A headless Chromium, driven over its DevTools pipe: two named pipes and no port.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{PATIENCE, until};

/// A browser with one tab.
pub(crate) struct Browser {
    child: Child,
    folder: PathBuf,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluicegate-page-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("profile")).expect("a temporary folder");
        let (to, from) = (folder.join("to"), folder.join("from"));
        let made = Command::new("mkfifo").arg(&to).arg(&from).status();
        assert!(made.expect("mkfifo runs").success());
        let child = Command::new("sh")
            .args(["-c", "exec 3<\"$0/to\" 4>\"$0/from\"; exec chromium \"$@\" --user-data-dir=\"$0/profile\""])
            .arg(&folder)
            .args(FLAGS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell runs");
        // In the order in which the shell opens its ends; each waits for the other.
        let to = File::options().write(true).open(to).expect("a pipe");
        let from = File::open(from).expect("a pipe");
        let mut browser = Self {
            child,
            folder,
            to,
            from: listen(from),
            session: None,
            calls: 0,
            events: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and waits for its result; events that come meanwhile are kept.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.to, "{message}\0").expect("chromium listens; is it installed?");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.from.recv_timeout(left);
            let mut answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == json!(self.calls) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
            if answer.get("method").is_some() {
                self.events.push(answer);
            }
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Value of an expression, promises awaited.
    #[track_caller]
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", params);
        let thrown = result.get("exceptionDetails");
        assert!(thrown.is_none(), "{expression}: {thrown:?}");
        result["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait(&mut self, expression: &str) {
        let guarded = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        until(expression, || {
            (self.eval(&guarded) == json!(true)).then_some(())
        });
    }

    pub(crate) fn text(&mut self, id: &str) -> String {
        let value = self.eval(&format!("document.getElementById('{id}').innerText"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Sets the size and the colours of the window.
    pub(crate) fn wear(&mut self, width: u32, height: u32, scheme: &str) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", media);
    }

    /// What has happened so far, of one kind.
    pub(crate) fn seen(&mut self, method: &str) -> Vec<Value> {
        // Whatever was on its way is here when the next answer is.
        self.eval("0");
        let events = self.events.iter().filter(|event| event["method"] == method);
        events.map(|event| event["params"].clone()).collect()
    }

    /// What went wrong on the page, by its own account.
    pub(crate) fn complaints(&mut self) -> Vec<Value> {
        let mut found = self.seen("Runtime.exceptionThrown");
        found.extend(self.seen("Log.entryAdded"));
        found.extend(self.seen("Runtime.consoleAPICalled"));
        found
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its own children end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn listen(from: File) -> Receiver<Value> {
    let (tx, rx) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut message = Vec::new();
        while from.read_until(0, &mut message).is_ok_and(|read| read > 0) {
            message.pop();
            let Ok(value) = serde_json::from_slice(&message) else {
                return;
            };
            message.clear();
            if tx.send(value).is_err() {
                return;
            }
        }
    });
    rx
}

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "about:blank",
];
