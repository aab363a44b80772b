//! The official JavaScript SDKs of A2A and MCP as clients of the gateway, where node is there.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use sinew_gateway::GrpcAddressForm;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::support::{GatewayWorld, SINGLE, review};

/// Packages that are installed.
const PACKAGES: [&str; 4] =
    ["@a2a-js/sdk@1.3.0", "@modelcontextprotocol/sdk@1.32.2", "@grpc/grpc-js@1", "@bufbuild/protobuf@2"];
/// Oldest version of node that the SDKs run with.
const OLDEST_NODE: u32 = 20;

/// A folder with the packages, installed once below the target folder. None without node, or where npm cannot be reached.
pub(crate) async fn installed() -> Option<PathBuf> {
    // Tests that run side by side all ask, and two installations in one folder break each other.
    static INSTALLED: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    INSTALLED.get_or_init(install).await.clone()
}

async fn install() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-sdks");
    let done = folder.join("installed");
    let version = Command::new("node").arg("--version").output().await.ok()?;
    let version = String::from_utf8_lossy(&version.stdout).trim().trim_start_matches('v').to_owned();
    let major: u32 = version.split('.').next()?.parse().ok()?;
    if major < OLDEST_NODE {
        println!("not run: node {version} is older than {OLDEST_NODE}");
        return None;
    }
    if !done.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("package.json"), r#"{"private": true}"#).unwrap();
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]).args(PACKAGES);
        let ended = npm.current_dir(&folder).stdin(Stdio::null()).output().await;
        if !ended.is_ok_and(|ended| ended.status.success()) {
            println!("not run: {PACKAGES:?} cannot be installed from npm here");
            return None;
        }
        std::fs::write(done, "").unwrap();
    }
    Some(folder)
}

/// Lines of JSON that a script prints. The script is copied to the packages, because imports are looked up from there.
pub(crate) async fn told_by(folder: &Path, script: &str, arguments: &[&str]) -> Vec<Value> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node").join(script);
    std::fs::copy(source, folder.join(script)).unwrap();
    let mut node = Command::new("node");
    node.arg(script).args(arguments).current_dir(folder).stdin(Stdio::null());
    let ended = node.output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{out}\n{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_javascript_sdks_call_workflows() {
    let Some(folder) = installed().await else { return };
    let world = GatewayWorld::with(&[("single", SINGLE), ("review", &review())], |options| {
        options.grpc_on_cards = Some(GrpcAddressForm::Authority);
    })
    .await;
    world.serve_echo().await;
    let calls = told_by(&folder, "a2a_client.mjs", &[&world.base, "single"]).await;
    let bindings: Vec<&Value> = calls.iter().map(|call| &call["binding"]).collect();
    assert_eq!(bindings, [&json!("JSONRPC"), &json!("HTTP+JSON"), &json!("GRPC")]);
    for call in &calls {
        let states = (&call["state"], &call["ended"]);
        assert_eq!(states, (&json!("TASK_STATE_COMPLETED"), &json!("TASK_STATE_COMPLETED")), "{call}");
        assert_eq!((&call["data"], &call["first"]), (&json!({"value": "hello"}), &json!("task")), "{call}");
        assert!(call["refused"].as_str().unwrap().contains("TaskNotFound"), "{call}");
    }
    let told = told_by(&folder, "mcp_client.mjs", &[&format!("{}/mcp", world.base)]).await;
    let [call] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(call["tools"], json!(["one", "review", "single"]), "{call}");
    assert_eq!((&call["single"], &call["review"]), (&json!({"value": "hello"}), &json!(false)), "{call}");
    assert_eq!(call["state"], "TASK_STATE_COMPLETED", "{call}");
    assert!(call["progress"].to_string().contains("a: done"), "{call}");
    world.end().await;
}
