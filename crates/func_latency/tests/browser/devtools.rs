//! A browser without a window, driven through a pipe by the DevTools protocol: JSON messages that end with a
//! zero byte.
//!
//! <https://chromedevtools.github.io/devtools-protocol/>. A pipe needs no port, and no library that speaks
//! WebSocket.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

/// What Debian's packages call it; the first has no window at all and is the smallest.
const PROGRAMS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// How long the browser may take for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser that is installed, if one is.
pub(crate) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let places =
        PROGRAMS.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    places.into_iter().find(|place| place.exists())
}

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Messages that answer no command.
    events: Vec<Value>,
    last_id: u64,
    session: Option<String>,
}

impl Browser {
    /// Starts one that keeps what it writes in `directory`.
    pub(crate) fn start(program: &Path, directory: &Path) -> Self {
        // The protocol is spoken on descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"])
            .arg(program)
            // Its sandbox does not start as root; what it opens is our own page.
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let (send, messages) = channel();
        std::thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self { process, commands, messages, events: vec![], last_id: 0, session: None };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let session =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.messages.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{method}: {e}"));
            if answer["id"] != json!(self.last_id) {
                self.events.push(answer);
                continue;
            }
            assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
            return answer["result"].clone();
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// The text of one element.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let value = self.value(&format!("document.querySelector({selector:?})?.innerText"));
        value.as_str().unwrap_or_else(|| panic!("{selector}: nothing there")).to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let started = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(started.elapsed() < PATIENCE, "waited in vain for {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Gives the window this size.
    pub(crate) fn resize(&mut self, (width, height): (u32, u32)) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.next_frame();
    }

    /// Opens a file from disk in a window of this size.
    pub(crate) fn open(&mut self, page: &Path, size: (u32, u32)) {
        self.open_at(page, "", size);
    }

    /// Opens a file from disk with a fragment, which is empty or begins with `#`.
    pub(crate) fn open_at(&mut self, page: &Path, fragment: &str, size: (u32, u32)) {
        self.resize(size);
        self.call("Page.navigate", json!({ "url": format!("file://{}{fragment}", page.display()) }));
        self.wait_for("document.getElementById('page')?.ariaBusy === 'false'");
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), buttons: u32) {
        let button = if buttons == 0 { "none" } else { "left" };
        let params =
            json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Moves the pointer there.
    pub(crate) fn hover(&mut self, at: (f64, f64)) {
        self.mouse("mouseMoved", at, 0);
        self.next_frame();
    }

    /// Moves the pointer through places faster than the page is drawn.
    pub(crate) fn dart(&mut self, places: &[(f64, f64)]) {
        places.iter().for_each(|at| self.mouse("mouseMoved", *at, 0));
        self.next_frame();
    }

    /// Clicks there.
    pub(crate) fn click(&mut self, at: (f64, f64)) {
        self.mouse("mouseMoved", at, 0);
        self.mouse("mousePressed", at, 1);
        self.mouse("mouseReleased", at, 1);
        self.next_frame();
    }

    /// Drags from one place to another.
    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from, 0);
        self.mouse("mousePressed", from, 1);
        self.mouse("mouseMoved", ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0), 1);
        self.mouse("mouseMoved", to, 1);
        self.mouse("mouseReleased", to, 1);
        self.next_frame();
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
        self.next_frame();
    }

    /// What was to be drawn is drawn.
    fn next_frame(&mut self) {
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }

    /// Writes a picture of the whole page.
    pub(crate) fn screenshot(&mut self, path: &Path) {
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", params);
        std::fs::write(path, BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// Makes `light` or `dark` what the user's system prefers.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
        self.next_frame();
    }

    /// Writes the page as it is printed.
    pub(crate) fn print(&mut self, path: &Path) {
        let paper = self.call("Page.printToPDF", json!({ "printBackground": false }));
        std::fs::write(path, BASE64_STANDARD.decode(paper["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// Errors that the page has thrown or written, and what it has loaded besides itself.
    pub(crate) fn complaints(&mut self, page: &Path) -> Vec<String> {
        self.call("Runtime.evaluate", json!({ "expression": "0" })); // what was sent before has come
        let own = format!("file://{}", page.display());
        let is_bad = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            Some("Network.requestWillBeSent") => event["params"]["request"]["url"] != own.as_str(),
            _ => false,
        };
        self.events.iter().filter(is_bad).map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
