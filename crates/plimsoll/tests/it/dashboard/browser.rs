//! A real browser, told what to do over the `WebDriver` protocol. It is gone with the value.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_lab::Process;
use serde_json::{Value, json};

/// How long a page may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Browser {
    address: String,
    session: String,
    _driver: Process,
}

impl Browser {
    /// None where there is no browser; `lab/browser with` and `./test` see to it.
    pub(super) fn open() -> Option<Self> {
        let driver = std::env::var("PLIMSOLL_LAB_DRIVER").ok().filter(|it| !it.is_empty());
        let Some(driver) = driver else {
            eprintln!("PLIMSOLL_LAB_DRIVER names no driver of a browser; left out");
            return None;
        };
        let mut command = Command::new(driver);
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().unwrap();
        let stdout = BufReader::new(driver.stdout.take().unwrap());
        let driver = Process::new(driver);
        let port = stdout.lines().map(Result::unwrap).find_map(|line| {
            line.split_once("started successfully on port ")
                .map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        let address = format!("127.0.0.1:{}", port.unwrap());
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--ignore-certificate-errors",
            "--window-size=1280,900",
        ];
        let asked = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = call(&address, "POST", "/session", &asked);
        let session = made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        Some(Self { address, session, _driver: driver })
    }

    fn ask(&self, method: &str, what: &str, body: &Value) -> Value {
        call(&self.address, method, &format!("/session/{}{what}", self.session), body)
    }

    pub(super) fn go(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// What a piece of script returns, or the promise that it returns comes to.
    pub(super) fn eval(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; (async () => {{ {script} }})().then(done, (e) => done('' + e))"
        );
        self.ask("POST", "/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Waits until the expression is true in the page.
    pub(super) fn until(&self, what: &str, expression: &str) {
        let begin = Instant::now();
        loop {
            let found = self.eval(&format!("return !!({expression})"));
            if found == json!(true) {
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "never: {what} ({found})\n{}",
                self.eval("return document.body.innerText")
            );
            sleep(Duration::from_millis(100));
        }
    }

    pub(super) fn text(&self) -> String {
        self.eval("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// What the page said went wrong since the last time.
    pub(super) fn errors(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().map(|it| it["message"].to_string()).collect()
    }

    /// A picture of what is seen, as a PNG.
    pub(super) fn picture(&self) -> Vec<u8> {
        let picture = self.ask("GET", "/screenshot", &Value::Null);
        STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }

    /// What axe-core finds that is serious or worse.
    pub(super) fn barriers(&self) -> Vec<String> {
        let axe = std::fs::read_to_string(std::env::var("PLIMSOLL_LAB_AXE").unwrap()).unwrap();
        let script = format!(
            "{axe}; const found = await axe.run(); return found.violations \
             .filter((it) => ['serious', 'critical'].includes(it.impact)) \
             .map((it) => it.id + ': ' + it.nodes.map((node) => node.html).slice(0, 3).join(' | '))"
        );
        let found = self.eval(&script);
        let list = found.as_array().unwrap_or_else(|| panic!("{found}"));
        list.iter().map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A driver that is killed leaves its browser behind.
        let _ = std::panic::catch_unwind(|| self.ask("DELETE", "", &Value::Null));
    }
}

/// One request to the driver; its value.
fn call(address: &str, method: &str, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
    let body = if method == "POST" { body.to_string() } else { String::new() };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    // By its length: the driver keeps connections open, whatever it is told.
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let value = answer["value"].clone();
    assert!(value["error"].is_null(), "{method} {path}: {value}");
    value
}
