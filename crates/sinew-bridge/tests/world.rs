//! A mesh with an executor, and bridges that are started, stopped and killed.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::CancellationToken;
use sinew_bridge::{Bridge, BridgeError, BridgeSettings};
use sinew_executor::client::Client;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{HeaderMap, Mesh, Provision};
use sinew_operations::mesh_operator::MeshOperator;
use sinew_operations::workflow_file::Options;
use sinew_operations::{deployment, mesh_operator};
use tempfile::TempDir;

/// Longer than anything here takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct BridgeWorld {
    server: Server,
    pub(crate) mesh: Mesh,
    folder: TempDir,
    service: Option<Service>,
    stop: CancellationToken,
}

/// A bridge with a runtime of its own, so that it can end like a process that is killed.
pub(crate) struct KillableBridge(Option<tokio::runtime::Runtime>);

impl KillableBridge {
    /// Ends everything at once: nothing is said to anybody.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for KillableBridge {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) async fn connect(url: &str, caller: &str, namespace: &str) -> Mesh {
    let connect = sinew_mesh::connect::Connect {
        url: Some(url.to_owned()),
        namespace: Some(namespace.to_owned()),
        caller: Some(caller.to_owned()),
        ..sinew_mesh::connect::Connect::default()
    };
    connect.open().await.unwrap()
}

impl BridgeWorld {
    /// A mesh without executors.
    pub(crate) async fn bare() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/get-nats.sh");
        let program = Some(Server::find_or_install(&script).unwrap());
        let server = Server::start(ServerOptions { program, ..ServerOptions::default() }).await.unwrap();
        let mesh = connect(&server.url(), "tester", "test").await;
        mesh.admin()
            .provision(&Provision { shards: NonZeroU32::new(2), ..Provision::default() })
            .await
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { server, mesh, folder, service: None, stop: CancellationToken::new() }
    }

    /// A mesh with an executor and these workflows.
    pub(crate) async fn with_workflows(workflows: &[(&str, &str)]) -> Self {
        let mut world = Self::bare().await;
        let flows = world.folder.path().join("flows");
        std::fs::create_dir(&flows).unwrap();
        for (name, text) in workflows {
            std::fs::write(flows.join(format!("{name}.yaml")), text).unwrap();
        }
        let read = deployment::read_workflows(&[flows], &Options::default()).unwrap();
        deployment::deploy_all(&world.mesh, &read).await.unwrap();
        let mut options = ServiceOptions::new(mesh_operator::adapter);
        options.calls = Some(mesh_operator::built_in_workflow);
        world.service =
            Some(Service::start(connect(&world.url(), "executor", "test").await, options).await.unwrap());
        for (name, _) in workflows {
            world.is_announced(name).await;
        }
        world
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Writes a bridge file.
    pub(crate) fn settings(&self, text: &str) -> BridgeSettings {
        let path = self.folder.path().join("x.bridge.yaml");
        std::fs::write(&path, text).unwrap();
        BridgeSettings::load(&path).unwrap_or_else(|findings| panic!("{findings:?}"))
    }

    /// Serves a bridge until the world ends; its card is there when this returns.
    pub(crate) async fn serve(&self, text: &str) {
        let bridge = self.open(text).await.unwrap();
        let name = bridge.name().to_owned();
        let own = connect(&self.url(), &name, "test").await;
        tokio::spawn(bridge.serve(own, self.stop.clone()));
        self.is_announced(&name).await;
    }

    pub(crate) async fn open(&self, text: &str) -> Result<Bridge, BridgeError> {
        let opened = tokio::time::timeout(PATIENCE, Bridge::open(self.settings(text), &self.stop)).await;
        opened.unwrap().map(|bridge| bridge.unwrap())
    }

    /// Starts a bridge that can be killed.
    pub(crate) async fn killable(&self, text: &str) -> KillableBridge {
        let (settings, url, stop) = (self.settings(text), self.url(), self.stop.clone());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (told, ready) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let bridge = Bridge::open(settings, &stop).await.unwrap().unwrap();
            let name = bridge.name().to_owned();
            let mesh = connect(&url, &name, "test").await;
            let _ = told.send(name);
            bridge.serve(mesh, stop).await.unwrap();
        });
        let name = ready.await.unwrap();
        self.is_announced(&name).await;
        KillableBridge(Some(runtime))
    }

    pub(crate) async fn operator(&self, caller: &str) -> MeshOperator {
        let mesh = connect(&self.url(), caller, "test").await;
        MeshOperator::new(Client::new(mesh, mesh_operator::adapter).await.unwrap())
    }

    pub(crate) async fn is_announced(&self, name: &str) {
        let cards = self.mesh.cards().follow();
        let waited = tokio::time::timeout(PATIENCE, cards.wait_for(name)).await;
        assert!(waited.is_ok(), "{name} does not come");
    }

    /// Sends a message to an agent or workflow by A2A, and returns the task that it is answered with.
    pub(crate) async fn ask(&self, agent: &str, id: &str, part: Value) -> Value {
        let message = json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [part]}});
        self.rpc(agent, "SendMessage", &message).await["task"].take()
    }

    /// The same, and waits until questions of the task are answered and the task has ended.
    pub(crate) async fn ask_to_end(&self, agent: &str, id: &str, part: Value) -> Value {
        let mut task = self.ask(agent, id, part).await;
        while ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING"]
            .map(Value::from)
            .contains(&task["status"]["state"])
        {
            task = self.rpc(agent, "GetTask", &json!({ "id": task["id"] })).await;
        }
        task
    }

    pub(crate) async fn rpc(&self, agent: &str, method: &str, params: &Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut headers = HeaderMap::new();
        headers.insert("A2A-Version", "1.0");
        let reply =
            self.mesh.services().call_rpc(agent, method, headers, body.into(), PATIENCE).await.unwrap();
        let mut answer: Value = serde_json::from_slice(&reply.body).unwrap();
        if answer["error"].is_object() { answer["error"].take() } else { answer["result"].take() }
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        if let Some(service) = self.service.take() {
            service.drain().await;
        }
    }
}

/// The data of a task's first artifact.
pub(crate) fn output(task: &Value) -> &Value {
    let artifacts = task["artifacts"].as_array().unwrap_or_else(|| panic!("no artifacts: {task:#}"));
    let mut parts = artifacts.iter().rev().flat_map(|artifact| artifact["parts"].as_array().unwrap());
    parts.find_map(|part| part.get("data")).unwrap_or_else(|| panic!("no data: {task:#}"))
}

/// One agent named `outside`, whose output is the workflow's.
pub(crate) const SINGLE: &str = r#"
workflow:
  description: One outside agent
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
  nodes:
    - {id: a, type: agent, agent_name: outside, input: {text: "{{workflow.input.text}}"}}
  output_mapping: {text: "{{a.output.text}}", state: "{{a.output.state}}"}
"#;
