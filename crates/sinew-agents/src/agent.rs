//! An agent: its card and the only function that calls it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::a2a::AgentSkill;
use sinew_protocol::card::{self, AgentKind, Announcement};
use sinew_protocol::mcp_offer::McpOffer;
use sinew_source::{Diagnostics, Schema, Sources, Span};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Reply};
use crate::error::AgentError;
use crate::file::{AgentFile, Delivery, Skill};
use crate::peers::PeerDescription;
use crate::reach::AgentReach;
use crate::run::compiled_schema;
use crate::run::{AgentCase, AgentTools, CaseOutcome, ModelDescription, ModelPong};
use crate::run::{
    AgentProfile, AnnouncedTools, Command, Http, Limits, McpAgent, ModelAgent, Output, RunnerSurroundings,
    Script,
};
use crate::template::Environment;

/// Default time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit for a server to list its tools.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Default time limit of a conversation with a model.
const MODEL_TIMEOUT: Duration = Duration::from_mins(15);

/// An agent loaded from a file.
pub struct Agent {
    file: AgentFile,
    offer: McpOffer,
    runner: AgentRunner,
    input: Option<Schema>,
    output: Option<Schema>,
    slots: Semaphore,
    around: RunnerSurroundings,
    /// Tools of the agent's MCP server; empty before discovery.
    tools: OnceLock<AnnouncedTools>,
    /// Source span of the name, for findings about it.
    pub(crate) place: (Sources, Span),
    pub(crate) warnings: Diagnostics,
    pub(crate) reach: AgentReach,
}

#[derive(Debug)]
pub(crate) enum AgentRunner {
    Script(Script),
    Command(Command),
    Http(Http),
    Mcp(Box<McpAgent>),
    Model(Box<ModelAgent>),
}

impl Agent {
    pub(crate) fn new(
        (file, offer): (AgentFile, McpOffer),
        runner: AgentRunner,
        (input, output): (Option<Schema>, Option<Schema>),
        around: RunnerSurroundings,
        place: (Sources, Span),
    ) -> Self {
        let slots = Semaphore::new(file.concurrency as usize);
        let warnings = Diagnostics::new(place.0.clone());
        Self {
            file,
            offer,
            runner,
            input,
            output,
            slots,
            around,
            tools: OnceLock::new(),
            place,
            warnings,
            reach: AgentReach::default(),
        }
    }

    /// Returns what the agent accesses outside its sandbox.
    pub fn reach(&self) -> &AgentReach {
        &self.reach
    }

    /// Returns the path of the agent file as the caller passed it.
    pub fn file(&self) -> &Path {
        Path::new(self.place.0.files().first().map_or("", |file| file.name.as_str()))
    }

    /// Returns findings about the file that do not prevent the use of the agent.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// Returns the name under which the agent is called.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Returns the version of the agent.
    pub fn version(&self) -> &str {
        &self.file.version
    }

    /// Returns the purpose of the agent.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// Returns the JSON Schema of the input: that of the file, else that of the discovered tools.
    pub fn input_schema(&self) -> Option<&Value> {
        self.file.input_schema.as_ref().or_else(|| self.tools.get()?.input_schema.as_ref())
    }

    /// Returns the JSON Schema of the output: that of the file, else that of the discovered tool.
    pub fn output_schema(&self) -> Option<&Value> {
        self.file.output_schema.as_ref().or_else(|| self.tools.get()?.output_schema.as_ref())
    }

    /// Returns how the mesh delivers tasks to the agent.
    pub fn delivery(&self) -> card::Delivery {
        match self.file.delivery {
            Delivery::Queue => card::Delivery::Queue,
            Delivery::Direct => card::Delivery::Direct,
        }
    }

    /// Returns the offer to hosts of the Model Context Protocol.
    pub fn offer(&self) -> &McpOffer {
        &self.offer
    }

    /// Returns the content of the agent's card.
    pub fn announcement(&self) -> Announcement {
        Announcement {
            name: self.file.name.clone(),
            description: self.file.description.clone(),
            version: self.file.version.clone(),
            kind: AgentKind::Agent,
            input_schema: self.input_schema().cloned(),
            output_schema: self.output_schema().cloned(),
            skills: self.skills(),
            visualisation: None,
            delivery: self.delivery(),
            node_requests: true,
            offer: self.offer.clone(),
            catalogue: self.file.catalogue.clone(),
        }
    }

    /// Returns the skills of the file, or the tools of the MCP server if the file has no skills.
    fn skills(&self) -> Vec<AgentSkill> {
        let own: Vec<AgentSkill> = self.file.skills.iter().map(skill).collect();
        match self.tools.get() {
            Some(tools) if own.is_empty() => tools.skills.clone(),
            _ => own,
        }
    }

    /// Lists the tools of an MCP agent's server, so that its card has their schemas. Does nothing
    /// for other agents.
    ///
    /// Fails if the server cannot be used; the card then has only the data of the file.
    pub async fn discover(&self) -> Result<(), Fault> {
        let AgentRunner::Mcp(agent) = &self.runner else { return Ok(()) };
        let limits = Limits::new(Some(DISCOVERY_TIMEOUT), CancellationToken::new());
        let tools = agent.announce(&limits, &self.around).await.map_err(Fault::from)?;
        // A repeated discovery returns the same tools.
        let _ = self.tools.set(tools);
        Ok(())
    }

    /// Returns the maximum number of concurrent calls.
    pub fn concurrency(&self) -> u32 {
        self.file.concurrency
    }

    /// Returns the time limit of a call, without time spent waiting for people.
    pub fn timeout(&self) -> Duration {
        let usual = if self.is_model() { MODEL_TIMEOUT } else { CALL_TIMEOUT };
        self.file.timeout.map_or(usual, |time| time.0)
    }

    /// Returns the time limit of a call, including time spent waiting for people.
    pub fn timeout_with_waiting(&self) -> Duration {
        match &self.runner {
            AgentRunner::Model(model) => {
                self.timeout().saturating_add(Duration::from_millis(model.budget.waiting_ms))
            }
            _ => self.timeout(),
        }
    }

    /// Runs the agent once. Time spent waiting for a free slot does not count. Drop to abort.
    pub async fn call(&self, call: Call) -> Result<Reply, Fault> {
        self.answer(&call).await.map_err(Fault::from)
    }

    async fn answer(&self, call: &Call) -> Result<Reply, AgentError> {
        check("input", call.input_schema.as_ref(), self.input.as_ref(), &call.input)
            .map_err(|found| found.or(AgentError::Input))?;
        let _slot = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(AgentError::Cancelled),
            slot = self.slot(call) => slot?,
        };
        // A conversation has its own clock, which stops while it waits for people.
        let own = if self.is_model() { None } else { Some(self.timeout()) };
        let limits = Limits::new(own, call.cancel.clone()).at_most(call.timeout);
        let Output { value, artifacts, usage, events } = match &self.runner {
            // Boxed, so that each waiting call allocates only the memory of its own kind.
            AgentRunner::Script(script) => Box::pin(script.run(call, &limits)).await,
            AgentRunner::Command(command) => Box::pin(command.run(call, &limits, &self.around)).await,
            AgentRunner::Mcp(agent) => {
                let fits = |value: &Value| {
                    check("output", call.output_schema.as_ref(), self.output.as_ref(), value).is_ok()
                };
                Box::pin(agent.run(call, &limits, &self.around, &fits)).await
            }
            AgentRunner::Http(http) => Box::pin(http.run(call, &limits, &self.around)).await,
            AgentRunner::Model(model) => {
                Box::pin(model.run(self.profile(), call, &limits, &self.around)).await
            }
        }?;
        check("output", call.output_schema.as_ref(), self.output.as_ref(), &value)
            .map_err(|found| found.or(AgentError::Output))?;
        Ok(Reply { output: value, artifacts, usage, events })
    }

    /// Waits for a free slot; `None` if the caller limits the concurrent calls.
    async fn slot(&self, call: &Call) -> Result<Option<SemaphorePermit<'_>>, AgentError> {
        if call.limited_by_caller {
            return Ok(None);
        }
        let slot = self.slots.acquire().await;
        slot.map(Some).map_err(|error| AgentError::Host(error.to_string()))
    }

    /// Returns the retention of conversation logs; `None` if the agent is not a model agent.
    pub fn log_keep(&self) -> Option<Duration> {
        match &self.runner {
            AgentRunner::Model(model) => Some(model.log_keep),
            _ => None,
        }
    }

    /// Returns the retention of sessions; `None` if the agent's conversations have no session.
    pub fn session_keep(&self) -> Option<Duration> {
        match &self.runner {
            AgentRunner::Model(model) => model.session.map(|session| session.keep),
            _ => None,
        }
    }

    /// Returns the description by which other agents discover this agent.
    pub fn as_peer(&self) -> PeerDescription {
        PeerDescription::of(&self.announcement().card(""))
    }

    /// Returns whether the agent calls a language model.
    pub fn is_model(&self) -> bool {
        matches!(self.runner, AgentRunner::Model(_))
    }

    /// Returns the tools that a node requests and a model agent lacks: MCP servers that its file does
    /// not have, and the search. Empty for other agents.
    ///
    /// `request` is the context of the node's task, as a dialect creates it.
    pub fn lacking_tools(&self, request: &Value) -> Vec<crate::LackingTool> {
        match &self.runner {
            AgentRunner::Model(model) => model.lacking_tools(request),
            _ => Vec::new(),
        }
    }

    /// Returns the models of a model agent: those of `use` in order, then those that only workflows
    /// can select. Empty for other agents.
    pub fn models(&self) -> Vec<ModelDescription> {
        match &self.runner {
            AgentRunner::Model(model) => model.descriptions(self.around.environment.as_ref()),
            _ => Vec::new(),
        }
    }

    /// Restricts the agent to the model of this alias. The first choice is final. Returns whether the
    /// agent has this model.
    pub fn choose_model(&self, alias: &str) -> bool {
        let AgentRunner::Model(model) = &self.runner else { return false };
        let is_known = self.models().iter().any(|one| one.alias == alias);
        is_known && model.chosen.get_or_init(|| alias.to_owned()) == alias
    }

    /// Sends a minimal request to the model of this alias; `None` if the agent has no such model.
    pub async fn ping_model(&self, alias: &str) -> Option<Result<ModelPong, String>> {
        let AgentRunner::Model(model) = &self.runner else { return None };
        model.ping(alias, self.around.environment.as_ref()).await
    }

    /// Returns the tools of a model agent, including those of its servers; `None` for other agents.
    pub async fn tools(&self, peers: &[PeerDescription]) -> Option<Result<AgentTools, Fault>> {
        let AgentRunner::Model(model) = &self.runner else { return None };
        Some(model.agent_tools(self.name(), peers, &self.around).await.map_err(Fault::from))
    }

    /// Runs a case of a model agent with a scripted model in virtual time; `None` for other agents.
    pub fn rehearse(&self, case: &AgentCase) -> Option<Result<CaseOutcome, Fault>> {
        let AgentRunner::Model(model) = &self.runner else { return None };
        Some(model.rehearse(self.profile(), case).map_err(Fault::from))
    }

    fn profile(&self) -> AgentProfile<'_> {
        AgentProfile {
            name: self.name(),
            description: self.description(),
            output_schema: self.output_schema(),
            timeout: self.timeout(),
        }
    }
}

fn skill(skill: &Skill) -> AgentSkill {
    AgentSkill {
        id: skill.id.clone(),
        name: if skill.name.is_empty() { skill.id.clone() } else { skill.name.clone() },
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: (!skill.examples.is_empty()).then(|| skill.examples.clone()),
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    }
}

/// Reason why a value does not pass a schema.
enum RefusedValue {
    Violations(Vec<String>),
    Unusable(AgentError),
}

impl RefusedValue {
    fn or(self, violations: impl FnOnce(Vec<String>) -> AgentError) -> AgentError {
        match self {
            Self::Violations(found) => violations(found),
            Self::Unusable(error) => error,
        }
    }
}

/// Validates a value against the schema of the call, else against that of the agent.
fn check(
    which: &'static str,
    own: Option<&Value>,
    agents: Option<&Schema>,
    value: &Value,
) -> Result<(), RefusedValue> {
    let compiled = own
        .map(compiled_schema)
        .transpose()
        .map_err(|error| RefusedValue::Unusable(AgentError::Schema { which, problem: error.to_string() }))?;
    let Some(schema) = compiled.as_ref().or(agents) else {
        return Ok(());
    };
    schema.check(value).map_err(|violations| {
        if violations.iter().any(sinew_source::Violation::is_over_budget) {
            return RefusedValue::Unusable(AgentError::CheckBudget { which });
        }
        let show = |violation: &sinew_source::Violation| {
            let pointer = if violation.pointer.is_empty() { "(root)" } else { &violation.pointer };
            format!("{pointer}: {}", violation.message)
        };
        RefusedValue::Violations(violations.iter().map(show).collect())
    })
}

pub(crate) fn process_environment() -> Arc<Environment> {
    Arc::new(|name: &str| std::env::var(name).ok())
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("name", &self.file.name).finish_non_exhaustive()
    }
}
