//! The agent or workflow that a call addresses, and the ids of its tasks as clients see them.
//!
//! At the endpoint of one agent, ids are the agent's own. At the endpoint of the mesh, a workflow's
//! task has the id of the execution, and an agent's task has the id `AGENT.TASK`: any gateway finds
//! the task by its id alone.

use std::sync::Arc;

use serde_json::Value;
use sinew_documents::catalogue::{CatalogueEntry, CataloguePage};
use sinew_mesh::MeshError;
use sinew_operations::catalogue::CatalogueQuery;
use sinew_operations::catalogue_records::RecordSet;
use sinew_protocol::a2a::{A2aError, AgentCard, Message, SendMessageRequest, StreamResponse, Task};
use sinew_protocol::access::matches_pattern;
use sinew_protocol::card::{self, AGENT_CALL_PREFIX, agent_call};
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::{ExecutionId, Fault, Token, code};

use super::peer::mesh_failed;
use super::{A2aOperations, MAX_TEXT, OperationCall, OperationsState, short};

/// Extension URI: a message to a whole mesh names its skill.
pub const SKILL_EXTENSION: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/skill/v1";
/// Maximum number of parent executions searched for the caller of a sub-workflow.
const MAX_PARENTS: usize = 64;
/// Maximum number of skills that an error names.
const MAX_NAMED_SKILLS: usize = 20;

/// The endpoint of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The whole mesh; its skills are workflows and agents.
    Mesh,
    /// One agent or workflow, by name.
    Agent(String),
}

/// A task and its agent.
#[derive(Clone, Debug)]
pub(super) struct TaskLocation {
    /// Agent or workflow.
    pub(super) agent: Arc<str>,
    /// Whether the agent is a workflow, whose tasks have the ids of their executions.
    pub(super) is_workflow: bool,
    /// Id known to the agent.
    pub(super) id: String,
    /// Prefix of the id for clients, including its dot.
    prefix: String,
}

impl TaskLocation {
    pub(super) fn new(endpoint: &Endpoint, agent: Arc<str>, is_workflow: bool, id: String) -> Self {
        let prefix = match endpoint {
            Endpoint::Mesh if !is_workflow => format!("{}.", Token::of(&agent)),
            _ => String::new(),
        };
        Self { agent, is_workflow, id, prefix }
    }

    /// Replaces the id of a task by the one that the client knows.
    pub(super) fn show(&self, task: &mut Task) {
        if self.prefix.is_empty() {
            return;
        }
        task.id.0.insert_str(0, &self.prefix);
        let messages = task.history.iter_mut().flatten().chain(task.status.message.as_mut());
        messages.for_each(|message| self.show_in_message(message));
    }

    /// Replaces the task id in a message by the one that the client knows.
    pub(super) fn show_in_message(&self, message: &mut Message) {
        if let Some(task) = &mut message.task_id {
            task.0.insert_str(0, &self.prefix);
        }
    }

    /// Replaces the task id in an event by the one that the client knows.
    pub(super) fn show_in_event(&self, event: &mut StreamResponse) {
        if self.prefix.is_empty() {
            return;
        }
        match event {
            StreamResponse::Task(task) => self.show(task),
            StreamResponse::Message(message) => self.show_in_message(message),
            StreamResponse::StatusUpdate(update) => {
                update.task_id.0.insert_str(0, &self.prefix);
                if let Some(message) = &mut update.status.message {
                    self.show_in_message(message);
                }
            }
            StreamResponse::ArtifactUpdate(update) => update.task_id.0.insert_str(0, &self.prefix),
            _ => {}
        }
    }

    /// Returns the prefix of this agent's ids for clients.
    pub(super) fn shown_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns whether clients see other ids than the agent.
    pub(super) fn renames(&self) -> bool {
        !self.prefix.is_empty()
    }
}

impl A2aOperations {
    /// Returns whether this gateway exposes an agent or workflow with this name. The execution that
    /// calls an agent is exposed with the agent.
    pub fn offers(&self, name: &str) -> bool {
        let called = name.strip_prefix(AGENT_CALL_PREFIX);
        let matches = |patterns: &[String]| {
            let fits = |pattern: &String| {
                matches_pattern(pattern, name) || called.is_some_and(|agent| matches_pattern(pattern, agent))
            };
            patterns.iter().any(fits)
        };
        matches(&self.shared.exposed) && self.only.as_deref().is_none_or(matches)
    }

    /// Returns whether the gateway exposes every workflow and agent to callers who may see all of
    /// them.
    pub(crate) fn exposes_everything(&self) -> bool {
        self.shared.exposed.iter().any(|pattern| pattern == "*")
    }

    /// Returns whether every workflow and agent is exposed.
    pub(crate) fn offers_every_name(&self) -> bool {
        self.exposes_everything() && self.only.is_none()
    }

    /// Returns the patterns of the caller; `None` if it may see every name.
    pub(crate) fn patterns(&self) -> Option<&[String]> {
        self.only.as_deref()
    }

    /// Returns whether every workflow and agent is exposed, with the executions of every caller.
    pub(crate) fn offers_everything(&self) -> bool {
        self.offers_every_name() && self.owner.is_none()
    }

    /// Returns the caller whose executions alone are accessible; `None` for those of every caller.
    pub(crate) fn owner(&self) -> Option<&Token> {
        self.owner.as_ref()
    }

    /// Returns whether executions of a workflow that a caller started are accessible.
    pub(crate) fn opens(&self, workflow: &str, caller: &str) -> bool {
        self.offers(workflow) && self.owner.as_ref().is_none_or(|owner| owner.as_str() == caller)
    }

    /// Returns whether an execution is accessible; `None` if it does not exist.
    pub(crate) async fn opens_execution(&self, execution: &ExecutionId) -> Result<Option<bool>, A2aError> {
        let Some(workflow) = self.workflow_of(execution).await? else { return Ok(None) };
        if !self.offers(&workflow) {
            return Ok(Some(false));
        }
        let Some(owner) = &self.owner else { return Ok(Some(true)) };
        Ok(self.first_caller_of(execution).await?.map(|caller| caller == *owner))
    }

    /// Returns the caller who started an execution, or its outermost parent.
    async fn first_caller_of(&self, execution: &ExecutionId) -> Result<Option<Token>, A2aError> {
        if let Some(known) = self.shared.caller_of.get(execution) {
            return Ok(Some(known));
        }
        let mut id = execution.clone();
        for _ in 0..MAX_PARENTS {
            let record = self.shared.client.record(&id).await;
            let Some(record) = record.map_err(|error| super::peer::client_failed(&error))? else {
                return Ok(None);
            };
            let Some(parent) = record.meta.parent else {
                self.shared.caller_of.insert(execution.clone(), record.meta.caller.clone());
                return Ok(Some(record.meta.caller));
            };
            id = parent.execution;
        }
        Ok(None)
    }

    /// Returns the cards of all exposed agents and workflows, by name.
    pub fn offered(&self) -> Vec<AgentCard> {
        let cards = self.shared.cards.list().into_iter().map(|announced| announced.card.clone());
        cards.filter(|card| self.offers(&card.name)).collect()
    }

    /// Lists or searches the catalogue of exposed agents and workflows.
    pub(crate) fn find_entries(&self, query: &CatalogueQuery) -> CataloguePage {
        let all = self.shared.cards.list();
        self.shared.catalogue.find((&all, &self.records()), query, |card| self.offers(&card.name))
    }

    /// Like [`A2aOperations::find_entries`], with at most `limit` entries of those that `wanted` selects.
    pub(crate) fn find_selected(
        &self,
        limit: usize,
        query: &CatalogueQuery,
        wanted: impl Fn(&AgentCard) -> bool,
    ) -> CataloguePage {
        let all = self.shared.cards.list();
        let visible = |card: &AgentCard| self.offers(&card.name) && wanted(card);
        self.shared.catalogue.find_up_to(limit, (&all, &self.records()), query, visible)
    }

    /// Returns an exposed entry with its schemas; `None` if no agent or workflow of this name is online.
    pub(crate) fn entry(&self, name: &str) -> Option<CatalogueEntry> {
        let query = CatalogueQuery { hidden: true, ..CatalogueQuery::default() };
        let page = self.find_selected(1, &query, |card| card.name == name);
        let mut entry = page.entries.into_iter().next()?;
        let card = self.card(name)?;
        entry.input_schema = card::input_schema(&card).cloned();
        entry.output_schema = card::output_schema(&card).cloned();
        Some(entry)
    }

    /// Returns what administrators set for entries of the catalogue.
    pub(crate) fn records(&self) -> RecordSet {
        self.shared.records.set()
    }

    /// Returns the cards of the exposed agents and workflows that lists contain, by name.
    pub(crate) fn listed(&self) -> Vec<AgentCard> {
        let records = self.records();
        let mut cards = self.offered();
        cards.retain(|card| !records.hides(&card.name));
        cards
    }

    /// Searches the views of agents and workflows. If nothing is found, the search is repeated
    /// after the views have caught up with the mesh, because they may be outdated.
    ///
    /// # Errors
    ///
    /// The mesh does not respond, so the requested item may exist.
    pub(crate) async fn find<T>(&self, search: impl Fn(&Self) -> Option<T>) -> Result<Option<T>, MeshError> {
        if let Some(found) = search(self) {
            return Ok(Some(found));
        }
        self.current().await?;
        Ok(search(self))
    }

    /// Waits until the views of agents and workflows have caught up with the mesh.
    async fn current(&self) -> Result<(), MeshError> {
        let OperationsState { cards, client, .. } = &*self.shared;
        tokio::try_join!(cards.current(), client.programs().workflows.current()).map(drop)
    }

    /// Returns whether an exposed agent or workflow has this name.
    pub(crate) fn has_card(&self, name: &str) -> bool {
        self.offers(name) && self.shared.cards.get(name).is_some()
    }

    /// Returns the card of an exposed agent or workflow.
    pub fn card(&self, name: &str) -> Option<AgentCard> {
        let announced = self.shared.cards.get(name).filter(|_| self.offers(name))?;
        Some(announced.card.clone())
    }

    /// Returns the name at which an agent or workflow is served: an agent without an endpoint is called
    /// through an execution.
    pub(crate) fn served_name(&self, name: &str) -> Arc<str> {
        match self.shared.cards.get(name) {
            Some(announced) if !card::has_endpoint(&announced.card) => agent_call(name).into(),
            _ => name.into(),
        }
    }

    /// Returns whether messages to this name start executions: of a deployed workflow, or of one that
    /// calls an agent.
    pub(crate) fn is_workflow(&self, name: &str) -> bool {
        name.starts_with(AGENT_CALL_PREFIX)
            || self.shared.client.programs().workflows.get(name).is_some()
            || self.shared.cards.get(name).is_some_and(|it| card::kind(&it.card) == card::AgentKind::Workflow)
    }

    /// Returns the agent that a message is for, unless it names a task.
    pub(super) async fn agent_of_message(
        &self,
        call: &OperationCall,
        params: &SendMessageRequest,
    ) -> Result<Arc<str>, A2aError> {
        let name = match &call.endpoint {
            Endpoint::Agent(name) => name.clone(),
            Endpoint::Mesh => match named_skill(params).or_else(|| self.shared.default_agent.clone()) {
                Some(name) => name,
                None => self.only_skill().await?,
            },
        };
        let is_known =
            |all: &Self| (all.shared.cards.get(&name).is_some() || all.is_workflow(&name)).then_some(());
        let found = if self.offers(&name) { self.find(is_known).await } else { Ok(None) };
        if found.map_err(|error| mesh_failed(&error))?.is_some() {
            return Ok(self.served_name(&name));
        }
        let text = format!("workflow or agent {:?} not found", short(&name, 64));
        Err(error_of(&Fault::invalid(code::GATEWAY_SKILL_UNKNOWN.as_str(), text)))
    }

    /// Returns the default skill, if it is the only one.
    async fn only_skill(&self) -> Result<String, A2aError> {
        self.current().await.map_err(|error| mesh_failed(&error))?;
        let mut names: Vec<String> = self.offered().into_iter().map(|card| card.name).collect();
        if let [only] = names.as_slice() {
            return Ok(only.clone());
        }
        let count = names.len();
        names.truncate(MAX_NAMED_SKILLS);
        let more = if count > names.len() { ", …" } else { "" };
        let text = format!(
            "the message names no skill; set metadata.skill, or call /agents/NAME. Skills: {}{more}",
            names.join(", ")
        );
        Err(error_of(&Fault::invalid(code::GATEWAY_SKILL_UNKNOWN.as_str(), text)))
    }

    /// Locates a task by the client's id. Only its agent knows whether the task exists.
    pub(super) async fn locate(&self, call: &OperationCall, id: &str) -> Result<TaskLocation, A2aError> {
        let absent = || A2aError::task_not_found(short(id, 64));
        if id.is_empty() {
            return Err(A2aError::invalid_params("id: expected a task id"));
        }
        if id.len() > MAX_TEXT {
            return Err(absent());
        }
        if let Endpoint::Agent(name) = &call.endpoint {
            let name = self.served_name(name);
            let is_workflow = self.is_workflow(&name);
            if is_workflow
                && self.owner.is_some()
                && let Ok(execution) = ExecutionId::parse(id)
                && self.opens_execution(&execution).await? == Some(false)
            {
                return Err(absent());
            }
            return Ok(TaskLocation::new(&call.endpoint, name, is_workflow, id.to_owned()));
        }
        if let Some((agent, task)) = id.split_once('.') {
            let token = Token::parse(agent).map_err(|_| absent())?;
            let card = self.find(|all| all.shared.cards.by_token(&token)).await;
            let card = card.map_err(|error| mesh_failed(&error))?.ok_or_else(absent)?;
            let name = card.card.name.clone();
            if !self.offers(&name) || self.is_workflow(&name) {
                return Err(absent());
            }
            return Ok(TaskLocation::new(&call.endpoint, name.into(), false, task.to_owned()));
        }
        let execution = ExecutionId::parse(id).map_err(|_| absent())?;
        let opens = self.opens_execution(&execution).await? == Some(true);
        let workflow = self.workflow_of(&execution).await?.filter(|_| opens);
        Ok(TaskLocation::new(&call.endpoint, workflow.ok_or_else(absent)?, true, id.to_owned()))
    }

    /// Returns the workflow of an execution, or `None` if there is no such execution.
    pub(crate) async fn workflow_of(&self, execution: &ExecutionId) -> Result<Option<Arc<str>>, A2aError> {
        if let Some(known) = self.shared.workflow_of.get(execution) {
            return Ok(Some(known));
        }
        let record =
            self.shared.client.record(execution).await.map_err(|error| super::peer::client_failed(&error))?;
        let workflow: Option<Arc<str>> = record.map(|record| record.meta.workflow.as_str().into());
        if let Some(workflow) = &workflow {
            self.shared.workflow_of.insert(execution.clone(), Arc::clone(workflow));
        }
        Ok(workflow)
    }

    /// Caches the workflow of an execution.
    pub(super) fn remember(&self, place: &TaskLocation) {
        if let (true, Ok(execution)) = (place.is_workflow, ExecutionId::parse(&place.id)) {
            self.shared.workflow_of.insert(execution, Arc::clone(&place.agent));
        }
    }
}

/// Returns the skill that a message names: `metadata.skill`, or the member of the extension.
pub(crate) fn named_skill(params: &SendMessageRequest) -> Option<String> {
    let named = |metadata: &Value| {
        let skill = metadata.get(SKILL_EXTENSION).or_else(|| metadata.get("skill"))?;
        skill.as_str().or_else(|| skill.get("skill")?.as_str()).map(str::to_owned)
    };
    [&params.message.metadata, &params.metadata].into_iter().flatten().find_map(named)
}
