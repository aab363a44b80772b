//! An agent from a file in a folder of its own, with everything a call needs.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_agents::{Agent, ArtifactFolder, Artifacts, Call, Environment, Reply};
use sinew_protocol::Fault;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;

pub(crate) struct Fixture {
    pub(crate) agent: Agent,
    pub(crate) folder: TempDir,
    pub(crate) artifacts: Arc<ArtifactFolder>,
}

/// The environment of all tests: the real PATH and one secret.
pub(crate) fn environment() -> Arc<Environment> {
    Arc::new(|name: &str| match name {
        "PATH" => std::env::var(name).ok(),
        "TOKEN" => Some("s3cret-canary".to_owned()),
        _ => None,
    })
}

impl Fixture {
    /// An agent that runs like this.
    pub(crate) fn new(run: &Value) -> Self {
        Self::file(&json!({ "name": "x", "run": run }))
    }

    /// An agent from this file.
    pub(crate) fn file(file: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.agent.json");
        std::fs::write(&path, file.to_string()).unwrap();
        Self::load(folder, &path)
    }

    /// An agent from a file that is in this folder already.
    pub(crate) fn load(folder: TempDir, path: &Path) -> Self {
        let agent = Agent::load_with(path, &environment()).unwrap_or_else(|error| panic!("{error}"));
        let artifacts = Arc::new(ArtifactFolder::open(folder.path().join("artifacts")).unwrap());
        Self { agent, folder, artifacts }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn input(&self, input: Value) -> Call {
        Call::new("x", input, self.artifacts.clone())
    }

    pub(crate) async fn call(&self, input: Value) -> Result<Reply, Fault> {
        self.agent.call(self.input(input)).await
    }

    pub(crate) async fn output(&self, input: Value) -> Result<Value, Fault> {
        self.call(input).await.map(|reply| reply.output)
    }

    pub(crate) fn stored(&self, name: &str) -> Vec<u8> {
        self.artifacts.get(name, None).unwrap()
    }
}

/// Everything said so far.
pub(crate) fn heard(progress: &mut UnboundedReceiver<Value>) -> Vec<String> {
    std::iter::from_fn(|| progress.try_recv().ok())
        .map(|said| said["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Code and message on one line, as tables compare them.
pub(crate) fn told(fault: &Fault) -> String {
    format!(
        "{} {}: {}{}",
        fault.code,
        fault.kind,
        fault.message,
        if fault.retryable { " (again)" } else { "" }
    )
}
