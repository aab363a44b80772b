//! A real Chromium, driven by WebDriver: one protocol over HTTP of which the tests need a handful of calls.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{PATIENCE, POLL_INTERVAL};

/// Key of elements in documents of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Starts of a driver until one has a port of its own.
const MAX_STARTS: usize = 5;
const ARGUMENTS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// A browser with one window. It ends with this value.
pub(crate) struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
}

/// Starts a driver, and gives its port. Drivers that start at the same time may choose one port; then the later ends and another
/// is started.
fn start_driver(program: &str) -> (Child, String) {
    for _ in 0..MAX_STARTS {
        let mut driver = Command::new(program)
            .args(["--port=0", "--log-level=SEVERE"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map(Result::unwrap).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        if let Some(port) = port {
            return (driver, port);
        }
        driver.wait().unwrap();
    }
    panic!("{program} did not start");
}

impl Browser {
    /// Starts a browser; `None` on a machine that has none and cannot install it. A check of the whole project fails then.
    pub(crate) async fn start() -> Option<Self> {
        // A second provider in one process is not an error here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/get-chromium.sh");
        let found = Command::new("bash").arg(&script).stderr(Stdio::inherit()).output().unwrap();
        if !found.status.success() {
            assert!(std::env::var_os("CI").is_none(), "no browser: {} failed", script.display());
            println!("NOT TESTED: there is no browser; {} says why", script.display());
            return None;
        }
        let found = String::from_utf8(found.stdout).unwrap();
        let (chromium, chromedriver) = found.trim().split_once('\n').unwrap();
        let (driver, port) = start_driver(chromedriver);
        let base = format!("http://127.0.0.1:{port}/session");
        let http = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": chromium, "args": ARGUMENTS},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let mut browser = Self { driver, http, session: base.clone() };
        let opened = browser.post("", &wanted).await;
        browser.session = format!("{base}/{}", opened["sessionId"].as_str().unwrap());
        Some(browser)
    }

    async fn post(&self, call: &str, body: &Value) -> Value {
        self.try_post(call, body).await.unwrap_or_else(|error| panic!("{call} {body}: {error}"))
    }

    /// Sends a command; the error is that of the driver.
    async fn try_post(&self, call: &str, body: &Value) -> Result<Value, Value> {
        let answer = self.http.post(format!("{}{call}", self.session)).json(body).send().await.unwrap();
        let status = answer.status();
        let mut document: Value = answer.json().await.unwrap();
        let value = document["value"].take();
        if status.is_success() { Ok(value) } else { Err(value) }
    }

    /// Sends a command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await;
    }

    /// From now on pages have this size, and readers prefer this colour scheme.
    pub(crate) async fn look_as(&self, (width, height): (u32, u32), scheme: &str) {
        let is_phone = width < 600;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", scheme).await;
    }

    pub(crate) async fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url })).await;
    }

    /// Loads the page anew, and waits until it is there.
    pub(crate) async fn reload(&self) {
        self.post("/refresh", &json!({})).await;
    }

    /// Runs a script in the page, and gives what it returns.
    pub(crate) async fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Runs a script that calls its last argument when it is done.
    pub(crate) async fn script_until_called(&self, script: &str) -> Value {
        self.post("/execute/async", &json!({"script": script, "args": []})).await
    }

    /// Waits until an expression of JavaScript holds in the page.
    pub(crate) async fn wait_until(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        let holds = async {
            while self.script(&script).await != true {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(PATIENCE, holds).await.is_err() {
            let text = self.script("return location.href + '\\n' + document.body.innerText").await;
            panic!("never true: {expression}\n{}", text.as_str().unwrap_or_default());
        }
    }

    /// Waits until the page shows a text.
    pub(crate) async fn wait_for_text(&self, text: &str) {
        self.wait_until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    async fn find(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({"using": "css selector", "value": selector})).await;
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {selector}: {found}")).to_owned()
    }

    /// Acts on an element. A live page may replace a part between the look for the element and the act on it; then the element is
    /// looked for anew.
    async fn act(&self, selector: &str, act: &str, body: &Value) {
        let acted = async {
            loop {
                let element = self.find(selector).await;
                match self.try_post(&format!("/element/{element}/{act}"), body).await {
                    Ok(_) => return,
                    Err(error) if error["error"] == "stale element reference" => {}
                    Err(error) => panic!("{act} {selector}: {error}"),
                }
            }
        };
        let is_done = tokio::time::timeout(PATIENCE, acted).await.is_ok();
        assert!(is_done, "{selector} was replaced again and again before it could take: {act}");
    }

    /// Clicks an element as a person does; it has to be there and to be reachable.
    pub(crate) async fn click(&self, selector: &str) {
        self.act(selector, "click", &json!({})).await;
    }

    pub(crate) async fn write(&self, selector: &str, text: &str) {
        self.act(selector, "value", &json!({ "text": text })).await;
    }

    /// Presses keys, one after the other, wherever the focus is, once the page hears them.
    pub(crate) async fn press(&self, keys: &[&str]) {
        self.wait_until("document.documentElement.dataset.keys === 'ready'").await;
        let strokes: Vec<Value> = keys
            .iter()
            .flat_map(|key| {
                [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
            })
            .collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]}))
            .await;
    }

    /// Bytes that the scripts of the page hold, after a collection of garbage.
    pub(crate) async fn heap_bytes(&self) -> f64 {
        self.devtools("HeapProfiler.collectGarbage", json!({})).await;
        self.script("return performance.memory.usedJSHeapSize").await.as_f64().unwrap()
    }

    /// Moves the pointer to a point of the window.
    pub(crate) async fn point_at(&self, (x, y): (f64, f64)) {
        self.devtools("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y})).await;
    }

    /// A picture of the page, as far as the window shows it.
    pub(crate) async fn save_picture(&self, name: &str) -> PathBuf {
        let answer = self.http.get(format!("{}/screenshot", self.session)).send().await.unwrap();
        let picture: Value = answer.json().await.unwrap();
        let bytes = data_encoding::BASE64.decode(picture["value"].as_str().unwrap().as_bytes()).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{name}.png"));
        std::fs::write(&file, bytes).unwrap();
        file
    }

    /// Messages of the page's console that came since the last look.
    pub(crate) async fn messages(&self) -> Vec<String> {
        let found = self.post("/se/log", &json!({"type": "browser"})).await;
        let texts =
            found.as_array().unwrap().iter().map(|one| format!("{}: {}", one["level"], one["message"]));
        texts.collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A browser whose driver is killed may live on, so it is closed first.
        let (host, path) = self.session.trim_start_matches("http://").split_once('/').unwrap();
        if let Ok(mut driver) = TcpStream::connect(host) {
            let _ = driver.set_read_timeout(Some(PATIENCE));
            let _ = write!(driver, "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
            let _ = driver.read(&mut [0; 64]);
        }
        let _ = Command::new("kill").arg(self.driver.id().to_string()).status();
        let _ = self.driver.wait();
    }
}
