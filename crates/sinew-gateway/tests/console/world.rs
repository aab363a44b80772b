//! A mesh with something to see: executions that ended well and badly, and one that waits for a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_agent::{Agent, Failure};
use sinew_gateway::{ConsoleMode, GatewayOptions};

use crate::support::{GatewayWorld, POLL_INTERVAL, SINGLE, review};

/// Two agents, one behind the other; the second fails until it is mended.
pub(crate) const CHAIN: &str = r#"
workflow:
  description: An order on its way
  input_schema:
    type: object
    properties:
      value: {type: string, description: Text to work on}
      amount: {type: integer, minimum: 0}
    required: [value]
  nodes:
    - {id: check, type: agent, agent_name: one, input: {value: "{{workflow.input.value}}"}}
    - {id: ship, type: agent, agent_name: shipper, depends_on: [check], input: {value: "{{check.output.value}}"}}
    - {id: invoice, type: agent, agent_name: one, depends_on: [ship], input: {value: "sent"}}
  output_mapping: {value: "{{ship.output.value}}"}
"#;

/// Text that must never become markup, a script, or another reading direction.
pub(crate) const HOSTILE: &str = "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>\
    \"' onmouseover=alert(4) x='</textarea></style><!-- ]]> {{7*7}} ${7*7} \u{1b}[31mred\u{1b}[0m \u{202e}txt.exe\u{2066} \
    [x](javascript:alert(5)) graph TD; a-->b; click a \"javascript:alert(6)\"";

/// A picture of one point.
pub(crate) const PICTURE: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0,
    0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63,
    0xf8, 0xcf, 0xc0, 0xf0, 0x1f, 0, 5, 0, 1, 0xff, 0x56, 0xc7, 0x2f, 0x0d, 0, 0, 0, 0, 0x49, 0x45, 0x4e,
    0x44, 0xae, 0x42, 0x60, 0x82,
];

/// One agent leaves files, the next is given the digest of one of them.
pub(crate) const PRINTING: &str = r#"
workflow:
  description: Prints and reads
  input_schema: {type: object, properties: {value: {type: string}}, required: [value]}
  nodes:
    - {id: print, type: agent, agent_name: printer, input: {value: "{{workflow.input.value}}"}}
    - {id: read, type: agent, agent_name: one, depends_on: [print], input: {value: "{{print.output.sha256}}"}}
  output_mapping: {value: "{{read.output.value}}"}
"#;

/// Name of a file that looks like markup.
pub(crate) const ODD_NAME: &str = "<img src=x onerror=alert(7)>.txt";

/// The mesh with its console.
pub(crate) struct ConsoleWorld {
    pub(crate) mesh: GatewayWorld,
    is_mended: Arc<AtomicBool>,
}

impl ConsoleWorld {
    pub(crate) async fn new() -> Self {
        Self::with(|options| options.console = Some(ConsoleMode::Full)).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        let review = review();
        let mesh =
            GatewayWorld::with(&[("single", SINGLE), ("chain", CHAIN), ("review", &review)], change).await;
        mesh.serve_echo().await;
        let is_mended = Arc::new(AtomicBool::new(false));
        let mended = Arc::clone(&is_mended);
        let shipper = Agent::dynamic("shipper", None, None, move |input, _| {
            let mended = mended.load(Ordering::SeqCst);
            async move { if mended { Ok(input) } else { Err(Failure::new("the truck broke down")) } }
        });
        mesh.serve(shipper).await;
        Self { mesh, is_mended }
    }

    /// Serves `printer`, which leaves files of several kinds, and tells hostile things of itself.
    pub(crate) async fn serve_printer(&self) {
        let printer = Agent::dynamic("printer", None, None, |input: Value, context| async move {
            let text = input["value"].as_str().unwrap_or_default().to_owned();
            let files = context.artifacts();
            files.put("report.md", "text/markdown", format!("# Report\n{text}\nend\n"))?;
            files.put(
                "table.csv",
                "text/csv",
                format!("name,amount\n\"{}\",3\n", text.replace('"', "\"\"")),
            )?;
            files.put("picture.png", "text/html", PICTURE)?;
            files.put("shot.png", "image/png", PICTURE)?;
            files.put(ODD_NAME, "text/html", text.clone())?;
            context.progress(json!(format!("printing {text}")));
            let report = format!("# Report\n{text}\nend\n");
            Ok(json!({ "value": text, "sha256": sinew_protocol::artifact::sha256(report.as_bytes()) }))
        });
        let printer = printer.description(HOSTILE).version(HOSTILE).skill("print", HOSTILE);
        self.mesh.serve(printer).await;
    }

    /// Serves `mill`, whose output or error is a line of a mebibyte.
    pub(crate) async fn serve_mill(&self) {
        let mill = Agent::dynamic("mill", None, None, |input: Value, context| async move {
            let line = format!("{HOSTILE}{}", "x".repeat(1 << 20));
            context.progress(json!(line[..50_000]));
            if input["value"] == "break" {
                return Err(Failure::new(line));
            }
            Ok(json!({ "value": line }))
        });
        self.mesh.serve(mill).await;
    }

    /// From now on `shipper` does its work.
    pub(crate) fn mend(&self) {
        self.is_mended.store(true, Ordering::SeqCst);
    }

    /// Deploys a file by the API.
    pub(crate) async fn deploy(&self, name: &str, text: &str) {
        let address = format!("{}/api/v1/workflows?name={name}", self.mesh.base);
        let answer = self.mesh.http.post(address).body(text.to_owned()).send().await.unwrap();
        let status = answer.status();
        assert_eq!(status, StatusCode::CREATED, "{}", answer.text().await.unwrap());
    }

    /// Starts a workflow by the API.
    pub(crate) async fn start(&self, workflow: &str, id: &str, input: &Value) {
        let body = json!({"workflow": workflow, "id": id, "input": input, "labels": {"team": "a"}});
        let request = self.mesh.http.post(format!("{}/api/v1/executions", self.mesh.base)).json(&body);
        let answer = request.send().await.unwrap();
        let status = answer.status();
        assert_eq!(status, StatusCode::CREATED, "{}", answer.text().await.unwrap());
    }

    /// Waits until an execution has a status.
    pub(crate) async fn reaches(&self, id: &str, wanted: &str) -> Value {
        loop {
            let answer = self
                .mesh
                .http
                .get(format!("{}/api/v1/executions/{id}", self.mesh.base))
                .send()
                .await
                .unwrap();
            let known = answer.status() == StatusCode::OK;
            let document: Value = answer.json().await.unwrap();
            if known && document["status"] == wanted {
                return document;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// One execution of each kind: `good` succeeded, `bad` failed, `asks` waits for a person.
    pub(crate) async fn fill(&self) {
        self.start("single", "good", &json!({"value": "hello"})).await;
        self.start("chain", "bad", &json!({"value": "an order"})).await;
        self.start("review", "asks", &json!({"amount": 5000})).await;
        self.reaches("good", "succeeded").await;
        self.reaches("bad", "failed").await;
        self.reaches("asks", "waiting").await;
    }

    /// A page: its status, its headers and its text.
    pub(crate) async fn page(&self, path: &str) -> (StatusCode, reqwest::header::HeaderMap, String) {
        let answer = self.mesh.request(Method::GET, path).send().await.unwrap();
        (answer.status(), answer.headers().clone(), answer.text().await.unwrap())
    }

    pub(crate) async fn end(self) {
        self.mesh.end().await;
    }
}
