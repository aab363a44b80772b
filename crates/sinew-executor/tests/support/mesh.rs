//! A mesh of its own for each test: a server, executors, agents.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sinew_agent::Delivery;
use sinew_dialects::LowerOptions;
use sinew_engine::Adapter;
use sinew_execution::Program;
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

use crate::support::process::{Part, Process, Role};

/// Longer than anything here takes on a loaded machine; shorter than a person waits.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Silence after which an executor of these tests is taken for dead.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Often, so that tests would see executions cancelled whose callers need them.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) fn adapters(name: &str) -> Option<&'static dyn Adapter> {
    sinew_dialects::by_name(name).map(sinew_dialects::Dialect::adapter)
}

/// A server of its own, and a mesh on it.
pub(crate) struct TestMesh {
    pub(crate) server: Server,
    site: Site,
}

impl std::ops::Deref for TestMesh {
    type Target = Site;
    fn deref(&self) -> &Site {
        &self.site
    }
}

impl TestMesh {
    pub(crate) async fn new() -> Self {
        Self::with(ServerOptions::default(), 4).await
    }

    pub(crate) async fn with(options: ServerOptions, shards: u32) -> Self {
        let server = server(options).await;
        let site = Site::new(&server.url(), "test", shards).await;
        Self { server, site }
    }
}

pub(crate) async fn server(options: ServerOptions) -> Server {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/get-nats.sh");
    let program = Some(Server::find_or_install(&script).unwrap());
    Server::start(ServerOptions { program, ..options }).await.unwrap()
}

/// A provisioned mesh.
pub(crate) struct Site {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) mesh: Mesh,
}

impl Site {
    pub(crate) async fn new(url: &str, namespace: &str, shards: u32) -> Self {
        let mesh = connect(url, namespace, "provision").await;
        let shards = NonZeroU32::new(shards);
        mesh.admin().provision(&Provision { shards, ..Provision::default() }).await.unwrap();
        Self { url: url.to_owned(), namespace: namespace.to_owned(), mesh }
    }

    pub(crate) async fn connect(&self, caller: &str) -> Mesh {
        connect(&self.url, &self.namespace, caller).await
    }

    pub(crate) async fn executor(&self, id: &str) -> Service {
        // No room for anything folded: what is folded anew for every input must come to the same.
        let options = ServiceOptions {
            id: id.to_owned(),
            lease: LEASE,
            memory_limit_bytes: 0,
            caller_check_interval: CALLER_CHECK_INTERVAL,
            ..ServiceOptions::new(adapters)
        };
        Service::start(self.connect(id).await, options).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_of("tester").await
    }

    pub(crate) async fn client_of(&self, caller: &str) -> Client {
        Client::new(self.connect(caller).await, adapters).await.unwrap()
    }

    /// Another process that plays this part.
    pub(crate) async fn process(&self, part: Part) -> Process {
        let (url, namespace) = (self.url.clone(), self.namespace.clone());
        Process::start(&Role { url, namespace, part }).await
    }

    /// A process with one executor.
    pub(crate) async fn executor_process(&self, id: &str) -> Process {
        let lease_ms = LEASE.as_millis() as u64;
        self.process(Part::Executor { id: id.to_owned(), lease_ms, compaction_threshold_bytes: None }).await
    }

    /// A process with these agents, each with the words of its stub.
    pub(crate) async fn agents_process(&self, delivery: Delivery, agents: &[(&str, Value)]) -> Process {
        let agents =
            agents.iter().map(|(name, words)| ((*name).to_owned(), words.clone(), Value::Null)).collect();
        self.process(Part::Agents { direct: delivery == Delivery::Direct, a2a: false, agents, slower: 1 })
            .await
    }

    /// Deploys all workflows of a file; gives their digests.
    pub(crate) async fn deploy(&self, name: &str, text: &str) -> Vec<String> {
        let document = sinew_source::load(
            text.as_bytes(),
            &LoadOptions {
                name: "test.yaml",
                variables: sinew_source::Variables::Kept,
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
        let mut digests = Vec::new();
        for lowered in dialect.lower(document, &options).unwrap_or_else(|found| panic!("{found:?}")) {
            digests.push(self.deploy_program(&Program::new(lowered.plan, dialect.adapter()).unwrap()).await);
        }
        digests
    }

    /// Deploys one workflow; gives its digest.
    pub(crate) async fn deploy_program(&self, program: &Program) -> String {
        let digest = store_plan(&self.mesh, program, None).await.unwrap();
        let deployment = Deployment {
            name: program.name().to_owned(),
            digest: digest.clone(),
            dialect: program.adapter.name().to_owned(),
            description: String::new(),
            card: Value::Null,
            mermaid: String::new(),
            at: 0,
            by: "tester".to_owned(),
            author_version: None,
            pause: None,
        };
        self.mesh.workflows().deploy(&deployment).await.unwrap();
        digest
    }

    /// An agent that answers by this function, and what it was asked.
    pub(crate) async fn agent(
        &self,
        name: &str,
        answer: impl Fn(&TaskExtra) -> Result<Value, Fault> + Send + 'static,
    ) -> Arc<Mutex<Vec<TaskExtra>>> {
        let mesh = self.connect(name).await;
        let mut queue = mesh.tasks().queue(&Token::of(name), 8);
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
                mesh.tasks().put_result(&extra.result_subject, HeaderMap::new(), body.into()).await.unwrap();
                delivery.ack().await.unwrap();
            }
        });
        seen
    }
}

pub(crate) async fn connect(url: &str, namespace: &str, caller: &str) -> Mesh {
    let connect = sinew_mesh::connect::Connect {
        url: Some(url.to_owned()),
        namespace: Some(namespace.to_owned()),
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
