//! The start of an execution: one operation for the REST API, webhooks, tools and the command line.
//!
//! [`MeshOperator::prepare_start`] resolves the workflow and checks everything that can be checked
//! without a change to the mesh; [`MeshOperator::start`] stores files and starts the execution. A
//! request that is rejected has stored nothing.

use sinew_documents::command::StartedExecution;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sinew_engine::ExecutionMode;
use sinew_execution::Program;
use sinew_executor::client::ClientError;
use sinew_mesh::artifact::{ArtifactOwner, PreparedArtifact};
use sinew_plan::Plan;
use sinew_protocol::artifact::StoredAt;
use sinew_protocol::card::{self, AGENT_CALL_PREFIX, agent_call};
use sinew_protocol::command::StartCommand;
use sinew_protocol::{ActivationKey, ExecutionId, TaskId, Token};

use crate::agent_list::{NO_SUCH_AGENT, find_agent};
use crate::deployment::find_deployed;
use crate::dry_run::output_samples;
use crate::failure::{Failure, FailureKind};
use crate::input_check::check_input;
use crate::input_files::{InputFile, MAX_FILES, file_entry, input_with_files};
use crate::mesh_operator::{MeshOperator, built_in_workflow};

/// What a start runs.
#[derive(Clone, Debug)]
pub enum StartTarget {
    /// A deployed workflow.
    Workflow {
        /// Its name.
        name: String,
        /// Digest of a version, or a prefix of one; `None` for the newest version at the start.
        version: Option<String>,
    },
    /// A stored plan, deployed or not.
    Plan {
        /// Name of the workflow.
        name: String,
        /// Digest of the plan.
        digest: String,
    },
    /// One call of an agent.
    Agent(String),
}

/// Identity of a start. Repeated starts of a caller with the same identity are one execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartKey {
    /// A new execution in every case.
    #[default]
    New,
    /// The id of the execution.
    Id(String),
    /// An idempotency key, from which the id is derived.
    Key(String),
}

impl StartKey {
    /// Returns the identity that a client has specified by an id or by an idempotency key.
    pub fn of(id: Option<String>, key: Option<String>) -> Result<Self, Failure> {
        match (id, key) {
            (None, None) => Ok(Self::New),
            (Some(id), None) => Ok(Self::Id(id)),
            (None, Some(key)) => Ok(Self::Key(key)),
            (Some(_), Some(_)) => {
                Err(Failure::usage("specify either an execution id or an idempotency key, not both"))
            }
        }
    }
}

/// A request to start an execution.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// What to run.
    pub target: StartTarget,
    /// Identity of the start.
    pub key: StartKey,
    /// Input of the execution; `Null` with [`StartRequest::input_artifact`].
    pub input: Value,
    /// Address of an artifact that contains the input.
    pub input_artifact: Option<String>,
    /// Files that are stored first, and listed in the input.
    pub files: Vec<InputFile>,
    /// Start nodes, given outputs, and whether agents are called.
    pub mode: ExecutionMode,
    /// Labels, by which executions can be listed.
    pub labels: BTreeMap<String, String>,
    /// Session of the execution; empty for none.
    pub session: String,
    /// Name of the user; empty for the caller.
    pub user: String,
}

impl StartRequest {
    /// Returns a request without options.
    pub fn new(target: StartTarget, input: Value) -> Self {
        Self {
            target,
            key: StartKey::New,
            input,
            input_artifact: None,
            files: Vec::new(),
            mode: ExecutionMode::default(),
            labels: BTreeMap::new(),
            session: String::new(),
            user: String::new(),
        }
    }
}

/// A start that was checked and has not been sent.
#[derive(Debug)]
pub struct PreparedStart {
    command: StartCommand,
    program: Program,
    files: Vec<PreparedArtifact>,
}

impl PreparedStart {
    /// Returns the id of the execution.
    pub fn execution(&self) -> &ExecutionId {
        &self.command.execution
    }
}

/// The workflow of a start.
struct ResolvedTarget {
    workflow: String,
    program: Program,
    pinned: Option<String>,
}

impl MeshOperator {
    /// Checks a start. Changes nothing.
    pub async fn prepare_start(&self, mut request: StartRequest) -> Result<PreparedStart, Failure> {
        let ResolvedTarget { workflow, program, pinned } = self.resolve_target(request.target).await?;
        let mut command = match request.key {
            StartKey::New => self.client.new_start_command(workflow, request.input),
            StartKey::Id(id) => StartCommand::new(own_id(&id)?, workflow, request.input),
            StartKey::Key(key) if key.is_empty() => return Err(empty_key()),
            StartKey::Key(key) => self.client.start_command(key, workflow, request.input),
        };
        command.version = pinned;
        command.labels = request.labels;
        command.session = request.session;
        command.user = request.user;
        if request.mode.dry_run && request.mode.samples.is_empty() {
            request.mode.samples = self.samples_of_cards(program.graph.plan()).await?;
        }
        if request.mode != ExecutionMode::default() {
            command.mode = serde_json::to_value(&request.mode).unwrap_or_default();
        }
        let mut files = Vec::new();
        match request.input_artifact {
            None => {
                files = self.prepare_files(&mut command, request.files).await?;
                check_input(&program, &command.input, &request.mode)?;
            }
            Some(address) => {
                let parsed = address.parse::<StoredAt>();
                parsed.map_err(|error| Failure::usage(format!("address of the input: {error}")))?;
                command.input = Value::Null;
                command.input_artifact = Some(address);
            }
        }
        self.client.check_start(&command)?;
        Ok(PreparedStart { command, program, files })
    }

    /// Returns samples of the outputs of the nodes of a plan, by the schemas of its file and of the
    /// cards of its callees.
    async fn samples_of_cards(&self, plan: &Plan) -> Result<BTreeMap<String, Arc<Value>>, Failure> {
        let cards = self.online().await?;
        let named: BTreeSet<&str> = plan.nodes.iter().filter_map(|node| node.agent.as_deref()).collect();
        let called: Vec<_> = named.into_iter().filter_map(|name| Some((name, cards.get(name)?))).collect();
        let schemas = called.iter().map(|(name, one)| (*name, card::output_schema(&one.card)));
        Ok(output_samples(plan, schemas))
    }

    /// Starts an execution. Once this returns, the execution will end, or be rejected with a verdict.
    pub async fn start(&self, prepared: PreparedStart) -> Result<StartedExecution, Failure> {
        let PreparedStart { command, program, files } = prepared;
        let warnings = self.start_warnings(program.graph.plan()).await;
        for file in files {
            self.mesh().artifacts().store(file).await?;
        }
        let (execution, workflow) = (command.execution.to_string(), command.workflow.clone());
        let new = self.client.start(command).await?;
        Ok(StartedExecution { execution, workflow, new, warnings, paused: None })
    }

    /// Waits until an executor has started an execution. Returns false if no executor has: the start
    /// is stored, and an executor will accept or reject it later. Fails if it was rejected.
    pub async fn wait_started(
        &self,
        execution: &ExecutionId,
        workflow: &str,
        patience: Duration,
    ) -> Result<bool, Failure> {
        match self.client.begun(execution, workflow, patience).await {
            Ok(begun) => Ok(begun),
            Err(refused @ (ClientError::Refused(_) | ClientError::OtherStart(_))) => Err(refused.into()),
            // The start is stored; only its state is unknown.
            Err(_) => Ok(false),
        }
    }

    async fn resolve_target(&self, target: StartTarget) -> Result<ResolvedTarget, Failure> {
        // An execution that called an agent may be repeated.
        let target = match target {
            StartTarget::Workflow { name, version: None } => match name.strip_prefix(AGENT_CALL_PREFIX) {
                Some(agent) => StartTarget::Agent(agent.to_owned()),
                None => StartTarget::Workflow { name, version: None },
            },
            target => target,
        };
        let (workflow, digest, pinned) = match target {
            StartTarget::Workflow { name, version } => {
                let (workflow, digest) = find_deployed(self, &name, version.as_deref()).await?;
                let pinned = version.map(|_| digest.clone());
                (workflow, digest, pinned)
            }
            StartTarget::Plan { name, digest } => (name, digest.clone(), Some(digest)),
            StartTarget::Agent(agent) => {
                // The error for an agent that is not online lists similar names.
                find_agent(&self.online().await?, &agent)?;
                let program = built_in_workflow(&agent_call(&agent)).ok_or_else(|| {
                    let text = format!("{agent:?} is not a valid agent name");
                    Failure::new(FailureKind::Usage, NO_SUCH_AGENT, text)
                })?;
                return Ok(ResolvedTarget { workflow: program.name().to_owned(), program, pinned: None });
            }
        };
        let program = self.client.programs().by_digest(&digest).await.map_err(ClientError::Plan)?;
        Ok(ResolvedTarget { workflow, program, pinned })
    }

    /// Prepares the files of a start, and lists them in its input.
    async fn prepare_files(
        &self,
        command: &mut StartCommand,
        files: Vec<InputFile>,
    ) -> Result<Vec<PreparedArtifact>, Failure> {
        if files.len() > MAX_FILES {
            return Err(Failure::usage(format!("files: at most {MAX_FILES}, not {}", files.len())));
        }
        let (execution, workflow) = (&command.execution, &command.workflow);
        let activation = ActivationKey::of::<&str>(execution, Token::of(workflow).as_str(), &[], 0);
        let task = TaskId::of(execution, &activation, 1);
        let owner =
            ArtifactOwner { app: workflow, user: self.mesh().caller().as_str(), execution, task: &task };
        let (mut prepared, mut entries) = (Vec::new(), Vec::new());
        for InputFile { name, media_type, bytes } in files {
            let file = self.mesh().artifacts().prepare(&owner, name, 0, &media_type, bytes).await;
            let file = file.map_err(|error| Failure::usage(format!("files: {error}")))?;
            let entry = file_entry(&file).ok_or_else(|| Failure::usage("files: a file has no address"))?;
            prepared.push(file);
            entries.push(entry);
        }
        let input = std::mem::take(&mut command.input);
        command.input = input_with_files(input, entries).map_err(Failure::usage)?;
        Ok(prepared)
    }
}

fn own_id(text: &str) -> Result<ExecutionId, Failure> {
    ExecutionId::parse(text).map_err(|error| Failure::usage(format!("execution id: {error}")))
}

/// Clients with an empty key would share one execution per caller.
fn empty_key() -> Failure {
    Failure::usage("the idempotency key is empty")
        .hint("omit the key, or set it to a value that identifies the request")
}
