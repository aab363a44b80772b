//! Programs by plan digest, and the resolution of a start to a version of its workflow.

use sinew_protocol::code;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sinew_engine::Adapter;
use sinew_mesh::workflow::{StoredPlan, Workflows};
use sinew_mesh::{Mesh, MeshError};
use sinew_plan::Plan;
use sinew_protocol::Fault;
use sinew_protocol::deployment::WorkflowPause;
use tracing::debug;

use sinew_execution::Program;

/// The workflow does not exist.
pub(crate) const NO_SUCH_WORKFLOW: &str = code::NO_SUCH_WORKFLOW.as_str();

/// Maximum number of cached programs.
const KEPT: u64 = 1_000;
/// Time without use after which a cached program is dropped: replaced versions are not requested
/// again.
const KEPT_UNUSED: Duration = Duration::from_mins(10);

/// Returns the adapter of a dialect.
pub type Adapters = fn(&str) -> Option<&'static dyn Adapter>;

/// Returns the generated workflow of this name, which is not deployed: `call:NAME` calls an agent,
/// `ask:person` asks a person.
pub type CallPrograms = fn(&str) -> Option<Program>;

/// Programs, loaded on demand.
#[derive(Clone)]
pub struct Programs {
    mesh: Mesh,
    adapters: Adapters,
    calls: Option<CallPrograms>,
    ready: moka::sync::Cache<Arc<str>, Program>,
    kept: Arc<AtomicU64>,
    /// Deployed workflows.
    pub workflows: Workflows,
}

impl Programs {
    /// Creates programs of these dialects from the store of this mesh.
    pub fn new(mesh: Mesh, adapters: Adapters, workflows: Workflows) -> Self {
        let ready = moka::sync::Cache::builder().max_capacity(KEPT).time_to_idle(KEPT_UNUSED).build();
        Self { mesh, adapters, calls: None, ready, kept: Arc::default(), workflows }
    }

    /// Adds generated workflows.
    #[must_use]
    pub fn with_calls(mut self, calls: Option<CallPrograms>) -> Self {
        self.calls = calls;
        self
    }

    /// Returns whether agents that other agents call are called by executions.
    pub fn has_calls(&self) -> bool {
        self.calls.is_some()
    }

    /// Returns the cached program of this digest.
    pub fn ready(&self, digest: &str) -> Option<Program> {
        self.ready.get(digest)
    }

    /// Returns the program of this digest. A retryable fault means that the store was unavailable.
    pub async fn by_digest(&self, digest: &str) -> Result<Program, Fault> {
        if let Some(program) = self.ready(digest) {
            return Ok(program);
        }
        let unusable = |text: String| Fault::error(code::PLAN_UNUSABLE.as_str(), text).with_retryable(false);
        let stored = match self.mesh.workflows().get_plan(digest).await {
            Err(MeshError::NotFound { .. }) => {
                return Err(unusable(format!("plan {digest} is not in the store")));
            }
            stored => stored?,
        };
        let adapter = (self.adapters)(&stored.dialect)
            .ok_or_else(|| unusable(format!("unknown dialect '{}'", stored.dialect)))?;
        let plan = serde_json::from_value::<Plan>(stored.plan)
            .map_err(|error| unusable(format!("plan {digest} cannot be read: {error}")))?;
        let program = Program::new(plan, adapter)
            .map_err(|error| unusable(format!("plan {digest} cannot be run: {error}")))?;
        if program.graph.digest() != digest {
            return Err(unusable(format!(
                "plan {digest} has a different digest: {}",
                program.graph.digest()
            )));
        }
        debug!(%digest, workflow = program.name(), "plan fetched");
        self.ready.insert(digest.into(), program.clone());
        Ok(program)
    }

    /// Returns why executions of this workflow start paused; `None` unless it is paused.
    pub fn pause_of(&self, name: &str) -> Option<String> {
        self.workflows.get(name)?.deployment.pause.as_ref().map(WorkflowPause::text)
    }

    /// Returns whether a workflow is deployed and not paused. Starts that were kept stay kept if it is
    /// deleted.
    pub(crate) fn is_unpaused(&self, name: &str) -> bool {
        self.workflows.get(name).is_some_and(|latest| latest.deployment.pause.is_none())
    }

    /// Like [`Self::pause_of`], and counts the starts that are kept.
    pub(crate) fn keep_start(&self, name: &str) -> Option<String> {
        let pause = self.pause_of(name)?;
        self.kept.fetch_add(1, Ordering::Relaxed);
        Some(pause)
    }

    /// Returns the number of starts that were kept so far.
    pub(crate) fn kept_count(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Returns the cached program for a start, if it belongs to this workflow.
    pub fn meant_at_hand(&self, name: &str, version: Option<&str>) -> Option<Program> {
        let program = match version {
            Some(digest) => self.ready(digest)?,
            None => self.ready(&self.workflows.get(name)?.deployment.digest)?,
        };
        (program.name() == name).then_some(program)
    }

    /// Returns the generated workflow of this name, if any. Its plan is stored like others, so
    /// every process finds it by its digest.
    async fn call(&self, name: &str) -> Result<Option<Program>, Fault> {
        let Some(program) = self.calls.and_then(|calls| calls(name)) else {
            return Ok(None);
        };
        let digest: Arc<str> = program.graph.digest().into();
        if self.ready(&digest).is_none() {
            store_plan(&self.mesh, &program, None).await?;
            self.ready.insert(digest, program.clone());
        }
        Ok(Some(program))
    }

    /// Returns the program for a start: of this digest, else the version deployed last.
    pub async fn meant(&self, name: &str, version: Option<&str>) -> Result<Program, Fault> {
        let deployed = || self.workflows.get(name).map(|deployed| deployed.deployment.digest.clone());
        let digest = if let Some(digest) = version.map(str::to_owned).or_else(deployed) {
            digest
        } else {
            if let Some(program) = self.call(name).await? {
                return Ok(program);
            }
            // The view may lag behind deployments.
            let latest = self.mesh.workflows().latest(name).await?;
            let missing = || Fault::invalid(NO_SUCH_WORKFLOW, format!("Workflow '{name}' not found"));
            latest.ok_or_else(missing)?.deployment.digest
        };
        let program = self.by_digest(&digest).await?;
        if program.name() != name {
            let text = format!("plan {digest} belongs to workflow '{}', not to '{name}'", program.name());
            return Err(Fault::invalid(NO_SUCH_WORKFLOW, text));
        }
        Ok(program)
    }
}

/// Stores a plan and returns its digest: the first half of deploying a workflow.
pub async fn store_plan(mesh: &Mesh, program: &Program, source: Option<String>) -> Result<String, MeshError> {
    let plan = serde_json::to_value(program.graph.plan()).unwrap_or_default();
    let dialect = program.adapter.name().to_owned();
    mesh.workflows().put_plan(&StoredPlan { dialect, plan, source, texts: None }).await
}
