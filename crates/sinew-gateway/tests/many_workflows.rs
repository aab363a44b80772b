//! A mesh of 400 workflows: clients of MCP, and a model that takes the first hit, find and call the right
//! one, and a model reads few tokens of tools.

use std::path::Path;
use std::process::Stdio;

use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::mcp_support::{Road, TestClient, newest};
use crate::node_sdk::{installed, told_by};
use crate::python_sdk::python_with;
use crate::support::{GatewayWorld, SINGLE};

/// What workflows do, and how people ask for it: name, verb of the description, verb of the request.
const VERBS: [(&str, &str, &str); 20] = [
    ("refund", "Refunds the payment of", "give me a refund for"),
    ("cancel", "Cancels", "I want to cancel"),
    ("ship", "Ships", "please ship"),
    ("track", "Tracks the delivery of", "where can I track"),
    ("price", "Calculates the price of", "what is the price of"),
    ("translate", "Translates", "translate this into French:"),
    ("summarize", "Summarizes", "summarize"),
    ("archive", "Archives", "move to the archive:"),
    ("approve", "Asks a manager to approve", "this needs approval:"),
    ("print", "Prints", "print on paper:"),
    ("scan", "Scans for viruses in", "run a virus scan on"),
    ("convert", "Converts the format of", "convert to another format:"),
    ("publish", "Publishes", "publish"),
    ("encrypt", "Encrypts", "encrypt"),
    ("compare", "Compares two versions of", "compare with the older version of"),
    ("validate", "Validates the fields of", "validate the fields in"),
    ("schedule", "Schedules", "put on my schedule:"),
    ("assign", "Assigns an owner to", "assign to somebody:"),
    ("notify", "Notifies the customer about", "notify the customer about"),
    ("export", "Exports to a spreadsheet", "export into a spreadsheet:"),
];

/// What they are about.
const OBJECTS: [&str; 20] = [
    "order",
    "invoice",
    "contract",
    "parcel",
    "ticket",
    "meeting",
    "flight",
    "booking",
    "report",
    "photo",
    "recording",
    "newsletter",
    "timesheet",
    "survey",
    "prescription",
    "warranty",
    "subscription",
    "certificate",
    "blueprint",
    "recipe",
];

/// Number of requests.
const TASKS: usize = 50;
/// Tokens of tools that a task may cost, at four bytes a token.
const MAX_TOKENS: usize = 3_000;
const TOKEN_BYTES: usize = 4;

fn workflows() -> Vec<(String, String)> {
    let all = VERBS.iter().flat_map(|verb| OBJECTS.map(|object| (verb, object)));
    let text = |((verb, describes, _), object): (&(&str, &str, &str), &str)| {
        let name = format!("{verb}-{object}");
        (name.clone(), SINGLE.replace("One agent", &format!("{describes} the {object}.")))
    };
    all.map(text).collect()
}

/// Requests with the names of the right workflows, spread over verbs and objects.
fn tasks() -> Vec<(String, String)> {
    let task = |at: usize| {
        let ((verb, _, asks), object) =
            (VERBS[at % VERBS.len()], OBJECTS[(at * 7 + at / 20) % OBJECTS.len()]);
        (format!("{asks} the {object}"), format!("{verb}-{object}"))
    };
    (0..TASKS).map(task).collect()
}

/// Checks what a client reports: each right tool was called, and the model read few tokens.
fn check(client: &str, report: &Value) {
    let expected: Vec<String> = tasks().into_iter().map(|(_, name)| name).collect();
    let called: Vec<&str> =
        report["called"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(called, expected, "{client}");
    let bytes = |member: &str| usize::try_from(report[member].as_u64().unwrap()).unwrap();
    assert!(bytes("listed") <= 40, "{client}: {report}");
    let tokens = (bytes("declared") + bytes("found")) / TOKEN_BYTES;
    println!("{client}: {} tools listed, {tokens} tokens of tools for a task", bytes("listed"));
    assert!(tokens <= MAX_TOKENS, "{client}: {tokens} tokens");
}

/// A scripted model behind the official Rust SDK: it searches, and calls the first hit.
async fn scripted_model(world: &GatewayWorld) -> Value {
    let client = TestClient::plain().connect(world, Road::Http, newest()).await;
    let tools = client.list_all_tools().await.unwrap();
    let (mut called, mut largest) = (Vec::new(), 0);
    for (task, _) in tasks() {
        let call = async |name: &'static str, arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            let result = client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await;
            result.unwrap().structured_content.unwrap_or_default()
        };
        let found = call("find_tools", json!({"query": task, "limit": 5})).await;
        largest = largest.max(found.to_string().len());
        let tool = found["tools"][0]["name"].as_str().unwrap_or_default().to_owned();
        let answer = call("call_tool", json!({"tool": tool, "arguments": {"value": task}})).await;
        called.push(if answer == json!({"value": task}) { tool } else { format!("{tool} failed") });
    }
    let declared = serde_json::to_vec(&tools).unwrap().len();
    json!({"listed": tools.len(), "declared": declared, "found": largest, "called": called})
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_the_right_one_of_400_workflows() {
    let texts = workflows();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(texts.len(), 400);
    let world = GatewayWorld::new(&texts).await;
    world.serve_echo().await;
    for (name, _) in &texts {
        world.wait_for_card(name).await;
    }
    check("rmcp", &scripted_model(&world).await);
    let requests: Vec<String> = tasks().into_iter().map(|(task, _)| task).collect();
    let (requests, address) = (serde_json::to_string(&requests).unwrap(), format!("{}/mcp", world.base));
    if let Some(python) = python_with(&["mcp==2.3.0"]).await {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/find_client.py");
        let mut command = Command::new(python);
        command.arg(script).arg(&address).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = command.spawn().unwrap();
        let mut stdin = started.stdin.take().unwrap();
        stdin.write_all(requests.as_bytes()).await.unwrap();
        drop(stdin);
        let ended = started.wait_with_output().await.unwrap();
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{out}\n{err}");
        check("python", &serde_json::from_str(&out).unwrap());
    }
    if let Some(folder) = installed().await {
        let told = told_by(&folder, "find_client.mjs", &[&address, &requests]).await;
        check("javascript", &told[0]);
    }
    world.end().await;
}
