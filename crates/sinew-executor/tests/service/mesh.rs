//! A mesh of its own for each test: a server, executors, agents.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sinew_dialects::LowerOptions;
use sinew_engine::Adapter;
use sinew_executor::Program;
use sinew_executor::client::Client;
use sinew_executor::service::{Service, ServiceOptions, store_plan};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{HeaderMap, Mesh, Provision};
use sinew_protocol::a2a::SendMessageRequest;
use sinew_protocol::artifact::ArtifactName;
use sinew_protocol::command::StartCommand;
use sinew_protocol::deployment::Deployment;
use sinew_protocol::task::{Draft, ResultArtifact, TaskExtra, result_task};
use sinew_protocol::{Fault, TaskId, Token};
use sinew_source::{Limits, LoadOptions};

/// Longer than anything here takes on a loaded machine; shorter than a person waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn adapters(name: &str) -> Option<&'static dyn Adapter> {
    sinew_dialects::by_name(name).map(|dialect| dialect.adapter())
}

pub(crate) struct TestMesh {
    pub(crate) server: Server,
    pub(crate) mesh: Mesh,
}

impl TestMesh {
    pub(crate) async fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/get-nats.sh");
        let program = Some(Server::find_or_install(&script).unwrap());
        let server = Server::start(ServerOptions { program, ..ServerOptions::default() }).await.unwrap();
        let mesh = connect(&server, "provision").await;
        let shards = NonZeroU32::new(4);
        mesh.provision(&Provision { shards, ..Provision::default() }).await.unwrap();
        Self { server, mesh }
    }

    pub(crate) async fn executor(&self, id: &str) -> Service {
        let mesh = connect(&self.server, id).await;
        let lease = Duration::from_secs(2);
        let options = ServiceOptions { id: id.to_owned(), lease, ..ServiceOptions::new(adapters) };
        Service::start(mesh, options).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(connect(&self.server, "tester").await, adapters).await.unwrap()
    }

    /// Deploys all workflows of a file.
    pub(crate) async fn deploy(&self, name: &str, text: &str) {
        let document = sinew_source::load(
            text.as_bytes(),
            &LoadOptions {
                name: "test.yaml",
                env: &|_| None,
                read: &|_| Err("no includes".to_owned()),
                limits: Limits::default(),
            },
        )
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
        let dialect = sinew_dialects::detect(&document).unwrap();
        let options = LowerOptions {
            default_name: name,
            read: &|_| Err("no other files".to_owned()),
            list: &sinew_dialects::no_list,
            agents: &BTreeMap::new(),
        };
        for lowered in dialect.lower(document, &options).unwrap_or_else(|found| panic!("{found:?}")) {
            let program = Program::new(lowered.plan, dialect.adapter()).unwrap();
            let digest = store_plan(&self.mesh, &program, None).await.unwrap();
            let deployment = Deployment {
                name: program.name().to_owned(),
                digest,
                dialect: dialect.name().to_owned(),
                description: String::new(),
                card: Value::Null,
                mermaid: String::new(),
                at: 0,
                by: "tester".to_owned(),
            };
            self.mesh.deploy(&deployment).await.unwrap();
        }
    }

    /// An agent that answers by this function, and what it was asked.
    pub(crate) async fn agent(
        &self,
        name: &str,
        answer: impl Fn(&TaskExtra) -> Result<Value, Fault> + Send + 'static,
    ) -> Arc<Mutex<Vec<TaskExtra>>> {
        let mesh = connect(&self.server, name).await;
        let mut queue = mesh.agent_queue(&Token::of(name), 8);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let delivery = queue.next().await;
                let request: SendMessageRequest = serde_json::from_slice(&delivery.body).unwrap();
                let extra = TaskExtra::find(request.metadata.as_ref()).unwrap().unwrap();
                let result = answer(&extra);
                asked.lock().unwrap().push(extra.clone());
                let body = worded(&delivery.task, result);
                mesh.result(&extra.result_subject, HeaderMap::new(), body.into()).await.unwrap();
                delivery.ack().await.unwrap();
            }
        });
        seen
    }
}

pub(crate) async fn connect(server: &Server, caller: &str) -> Mesh {
    let connect = sinew_mesh::connect::Connect {
        url: Some(server.url()),
        caller: Some(caller.to_owned()),
        ..sinew_mesh::connect::Connect::default()
    };
    connect.open().await.unwrap()
}

/// A result as an agent words it.
pub(crate) fn worded(task: &TaskId, result: Result<Value, Fault>) -> Vec<u8> {
    let mut artifacts = Vec::new();
    let end = result.map(|output| {
        let name = ArtifactName::parse("output.json").unwrap();
        let bytes = output.to_string().into();
        let artifact = ResultArtifact::inline(name, 0, "application/json", &bytes).unwrap();
        artifacts.push(artifact.clone());
        artifact.reference()
    });
    let draft = Draft { artifacts: &artifacts, ..Draft::new(task, end) };
    serde_json::to_vec(&result_task(draft)).unwrap()
}

/// The start of a workflow under a key.
pub(crate) fn start(client: &Client, key: &str, workflow: &str, input: Value) -> StartCommand {
    let mut command = StartCommand::new(client.execution_id(key), workflow, input);
    command.idempotency_key = Some(key.to_owned());
    command
}
