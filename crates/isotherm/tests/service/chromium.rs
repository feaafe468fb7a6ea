//! Headless Chromium, controlled through a pipe (the DevTools protocol): enough to click through a page.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::LIMIT;

/// A browser with one page.
pub struct Browser {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: String,
    next: u64,
    /// Faults in the page: exceptions, errors on its console, refused requests.
    pub wrong: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; `None`, with a message, unless `ISOTHERM_NEED_CHROMIUM` requests it (`make web-check`), because it takes a minute
    /// or two.
    pub fn start() -> Option<Browser> {
        if std::env::var_os("ISOTHERM_NEED_CHROMIUM").is_none() {
            eprintln!("skipped: make web-check runs it in a real browser");
            return None;
        }
        let home = tempfile::tempdir().expect("a directory");
        let flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --disable-dev-shm-usage --remote-debugging-pipe";
        // Requests that get past the page's policy must reach no host either.
        let resolver = "--host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'";
        let line = format!(
            "exec chromium {flags} {resolver} --user-data-dir='{}' about:blank 3<&0 4>&1 1>&2",
            home.path().display()
        );
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut b = Browser {
            child,
            orders,
            answers,
            session: String::new(),
            next: 0,
            wrong: Vec::new(),
            _home: home,
        };
        let target = b.order("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = b.order(
            "Target.attachToTarget",
            &json!({"targetId": target["targetId"], "flatten": true}),
        );
        attached["sessionId"]
            .as_str()
            .expect("a session")
            .clone_into(&mut b.session);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            b.order(domain, &json!({}));
        }
        Some(b)
    }

    /// Sends a command and waits for its answer.
    pub fn order(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut order = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            order["sessionId"] = json!(self.session);
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        self.orders.write_all(&bytes).expect("chromium lives");
        loop {
            let mut answer = Vec::new();
            self.answers
                .read_until(0, &mut answer)
                .expect("chromium lives");
            assert_eq!(answer.pop(), Some(0), "chromium ended");
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            if answer["id"] == json!(id) {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let p = &event["params"];
        let wrong = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => p["exceptionDetails"].to_string(),
            Some("Runtime.consoleAPICalled") if p["type"] == json!("error") => {
                p["args"].to_string()
            }
            Some("Log.entryAdded") if p["entry"]["level"] == json!("error") => {
                p["entry"].to_string()
            }
            _ => return,
        };
        self.wrong.push(wrong);
    }

    /// The value of an expression in the page; promises are awaited.
    pub fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.order("Runtime.evaluate", &asked);
        assert_eq!(answer["exceptionDetails"], Value::Null, "{expression}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.eval(expression) != json!(true) {
            if begun.elapsed() > LIMIT {
                let text = self.eval("document.body.innerText");
                panic!("never: {expression}\n{text}\n{:#?}", self.wrong);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens a page in a window of that size.
    pub fn open(&mut self, url: &str, width: u32, height: u32, dark: bool) {
        self.look(width, height, dark);
        self.order("Page.navigate", &json!({"url": url}));
        self.wait("document.readyState === 'complete'");
    }

    /// Changes the size and the colour scheme.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) {
        let phone = width < 600;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": if phone { 2 } else { 1 }, "mobile": phone});
        self.order("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }}]});
        self.order("Emulation.setEmulatedMedia", &scheme);
    }

    /// A real click on an element, at the given share of its width and height.
    pub fn click(&mut self, id: &str, at: (f64, f64)) {
        self.click_on(&format!("document.getElementById('{id}')"), at);
    }

    /// The same for the element that is the value of an expression.
    pub fn click_on(&mut self, element: &str, (x, y): (f64, f64)) {
        let place = self.eval(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); return [r.left + r.width * {x}, r.top + r.height * {y}]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let at = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.order("Input.dispatchMouseEvent", &at);
        }
    }

    /// Presses keys, by the names of the DOM.
    pub fn keys(&mut self, keys: &[&str]) {
        for key in keys {
            for kind in ["keyDown", "keyUp"] {
                self.order(
                    "Input.dispatchKeyEvent",
                    &json!({"type": kind, "key": key, "code": key}),
                );
            }
        }
    }

    /// Inserts text as if it was typed.
    pub fn insert(&mut self, text: &str) {
        self.order("Input.insertText", &json!({"text": text}));
    }

    /// Saves a picture of the whole page in `target/tmp`.
    pub fn picture(&mut self, name: &str) {
        self.shoot(
            name,
            &json!({"format": "png", "captureBeyondViewport": true}),
        );
    }

    /// Saves a picture of its upper part, for the documentation.
    pub fn upper_part(&mut self, name: &str, width: u32, height: u32) {
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        self.shoot(
            name,
            &json!({"format": "png", "captureBeyondViewport": true, "clip": clip}),
        );
    }

    fn shoot(&mut self, name: &str, how: &Value) {
        // Waits for fonts and the next frame.
        self.eval("document.fonts.ready.then(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(true)))))");
        let shot = self.order("Page.captureScreenshot", how);
        let text = shot["data"].as_str().expect("a picture");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
        let out = std::fs::File::create(&file).expect("made");
        let mut decode = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(out)
            .spawn()
            .expect("base64");
        decode
            .stdin
            .take()
            .expect("piped")
            .write_all(text.as_bytes())
            .expect("written");
        assert!(decode.wait().expect("waited").success());
        let size = std::fs::metadata(&file).expect("there").len();
        assert!(size > 20_000, "{name}: an empty picture");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
