//! Agents from files, called by executions in one process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_agents::{Agent, AgentSet, Artifacts, LackingTool, LocalPeers, People, PersonPrompt, PersonReply};
use sinew_dialects::{Dialect, Lowered};
use sinew_documents::words;
use sinew_engine::{RequestTarget, TaskReply};
use sinew_execution::Call;
use sinew_plan::{NodeOperation, PlanNode};
use sinew_protocol::Fault;
use sinew_protocol::code;
use sinew_protocol::person_wait::{PersonWait, shorten_prompt};
use sinew_protocol::task::is_answer_piece;
use sinew_runtime::local::{Agents, Progress, now};
use sinew_source::{Diagnostic, Diagnostics};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, FailureKind};
use crate::workflow_file::Loaded;

/// No agent with this name is known here.
const NO_SUCH_AGENT: &str = code::NO_SUCH_AGENT.as_str();

/// Time limit for forwarding the last messages of a call.
pub const MESSAGES_TIMEOUT: Duration = Duration::from_secs(1);

/// Agents from files, with the artifacts of one execution.
pub struct FileAgents {
    /// The agents.
    pub set: AgentSet,
    /// Names of untrusted agents: calls of them are rejected.
    pub untrusted: BTreeSet<String>,
    /// Store of their artifacts.
    pub artifacts: Arc<dyn Artifacts>,
    /// The people whom agents may ask, by the asking node; `None` if they cannot ask.
    pub people: Option<PeopleOfNode>,
}

/// Returns the people whom the agent of a node may ask.
pub type PeopleOfNode = Box<dyn Fn(&str) -> Arc<dyn People> + Send + Sync>;

/// File that marks the folder of a node plugin.
const PLUGIN: &str = "definition.json";
/// Maximum depth of plugins below `nodes/`.
const PLUGIN_DEPTH: u32 = 4;

/// Reads agents from files and folders. Without paths, reads them from the workflow's folder, from
/// `agent-cards/` in its folder and the current one, and from the node plugins below `nodes/` in
/// its folder; the first of these with an agent of a name takes precedence.
pub fn load(paths: &[PathBuf], workflow: &Path) -> Result<AgentSet, Failure> {
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        let text = format!("file or folder {} not found", missing.display());
        return Err(Failure::new(FailureKind::NotFound, code::FILE_CANNOT_BE_READ.as_str(), text));
    }
    if paths.is_empty() {
        let mut places: Vec<PathBuf> = Vec::new();
        let beside = match workflow.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let usual = [beside.clone(), beside.join("agent-cards"), PathBuf::from("agent-cards")];
        let mut plugins = Vec::new();
        plugin_folders(&beside.join("nodes"), 0, &mut plugins);
        let mut seen = Vec::new();
        for place in usual.into_iter().chain(plugins).filter(|place| place.is_dir()) {
            let real = place.canonicalize().unwrap_or_else(|_| place.clone());
            if !seen.contains(&real) {
                seen.push(real);
                places.push(place);
            }
        }
        return AgentSet::load_nearest(&places).map_err(Failure::diagnostics);
    }
    AgentSet::load_paths(paths).map_err(Failure::diagnostics)
}

/// Selects one model in all agents that have it; other agents keep theirs. Fails if no agent has
/// it.
pub fn choose_model<'a>(
    agents: impl IntoIterator<Item = &'a Arc<Agent>>,
    alias: &str,
) -> Result<(), Failure> {
    let (mut is_known, mut known) = (false, BTreeSet::new());
    for agent in agents {
        is_known |= agent.choose_model(alias);
        known.extend(agent.models().into_iter().map(|model| model.alias));
    }
    if is_known {
        return Ok(());
    }
    let failure = Failure::usage(format!("no agent has a model '{alias}'"));
    Err(match sinew_source::did_you_mean(alias, known.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean '{near}'?")),
        None if known.is_empty() => failure.hint("no agent here calls a language model"),
        None => failure.hint(format!("models: {}", known.into_iter().collect::<Vec<_>>().join(", "))),
    })
}

/// Finds the folders of node plugins in a folder, by name.
fn plugin_folders(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    if folder.join(PLUGIN).is_file() {
        found.push(folder.to_owned());
        return;
    }
    // A folder that cannot be listed has no agents; a graph that needs them reports them missing.
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let inside =
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut inside: Vec<PathBuf> = inside.map(|entry| entry.path()).collect();
    inside.sort();
    for inner in inside.iter().filter(|_| depth < PLUGIN_DEPTH) {
        plugin_folders(inner, depth + 1, found);
    }
}

impl Agents for FileAgents {
    fn call(
        &self,
        call: Call,
        progress: Progress,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<TaskReply, Fault>> {
        let RequestTarget::Agent(name) = &call.ask.target else {
            // The driver handles sub-workflows itself.
            return std::future::ready(Err(unknown(call.ask.target.name()))).boxed();
        };
        let Some(agent) = self.set.get(name).cloned() else {
            let missing = unknown(name).with_details(vec![advice_on_missing(name, &self.set)]);
            return std::future::ready(Err(missing)).boxed();
        };
        if self.untrusted.contains(name) {
            let text = format!("agent '{name}' of {} is not trusted", agent.file().display());
            let advice = "add --trust, or name the file with --agents".to_owned();
            let refused = Fault::error(code::AGENT_FILES_NOT_TRUSTED.as_str(), text).with_retryable(false);
            return std::future::ready(Err(refused.with_details(vec![advice]))).boxed();
        }
        let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
        let mut task =
            sinew_agents::Call::new(name, Value::clone(&call.ask.input), Arc::clone(&self.artifacts));
        task.instruction.clone_from(&call.ask.instruction);
        task.input_schema.clone_from(&call.ask.input_schema);
        task.output_schema.clone_from(&call.ask.output_schema);
        task.context = context(&call);
        task.cancel = cancel;
        task.progress = sender;
        if let Some(people) = &self.people {
            let (people, progress) = (people(&call.node), progress.clone());
            let (agent, node) = (name.clone(), call.label.clone());
            task.people =
                Arc::new(ReportedPeople { people, progress, agent, node, asked: AtomicU64::new(0) });
        }
        let peers = LocalPeers::new(self.set.clone(), Arc::clone(&self.artifacts));
        task.peers = Arc::new(peers.with_people(Arc::clone(&task.people)));
        async move {
            // Ends with the call, because its sender is dropped with `task`.
            let (usage, teller) = (Arc::clone(&task.usage), progress.clone());
            let told = tokio::spawn(async move {
                while let Some(value) = said.recv().await {
                    if is_answer_piece(&value) {
                        progress.stream(value);
                    } else {
                        progress.say(value);
                    }
                }
            });
            let reply = agent.call(task).await;
            // Messages count until the attempt ends.
            let _ = tokio::time::timeout(MESSAGES_TIMEOUT, told).await;
            let reply = reply.inspect_err(|_| {
                let used = std::mem::take(&mut *usage.lock().unwrap_or_else(PoisonError::into_inner));
                teller.tell_usage(used);
            })?;
            let artifacts = reply.artifacts.iter().map(|artifact| json!(artifact)).collect();
            let (usage, events) = (reply.usage, reply.events);
            Ok(TaskReply { artifacts, usage, events, ..TaskReply::new(reply.output) })
        }
        .boxed()
    }
}

/// People whom an agent asks at the terminal; reports open questions to the execution.
struct ReportedPeople {
    people: Arc<dyn People>,
    progress: Progress,
    agent: String,
    node: String,
    /// Number of questions so far.
    asked: AtomicU64,
}

impl People for ReportedPeople {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        let since = now();
        let timeout = u64::try_from(prompt.timeout.as_millis()).unwrap_or(u64::MAX);
        let wait = PersonWait {
            execution: None,
            workflow: self.agent.clone(),
            node: self.node.clone(),
            activation: 0,
            prompt: shorten_prompt(&prompt.text),
            allowed: prompt.people.clone(),
            since,
            due: Some(since.saturating_add(timeout)),
            more: 0,
            is_busy: false,
        };
        let question = format!("question {}", self.asked.fetch_add(1, Ordering::Relaxed));
        let open = self.progress.wait_for_person(question, wait);
        async move {
            let reply = self.people.ask(prompt).await;
            drop(open);
            reply
        }
        .boxed()
    }
}

/// Returns the request around the input, as agents see it.
fn context(call: &Call) -> Value {
    json!({
        "workflow": call.workflow,
        "execution": call.execution.as_str(),
        "node": call.node,
        "path": call.path,
        "task": call.task.as_str(),
        "activation": call.activation.as_str(),
        "attempt": call.key.attempt,
        "purpose": call.ask.tag,
        "request": call.ask.context,
    })
}

/// Returns advice about an agent that is not in a set: a similar name, and the command that creates
/// one.
pub fn advice_on_missing(name: &str, set: &AgentSet) -> String {
    let make = format!("create one with `sinew new agent {}`", words::shell(name));
    match sinew_source::did_you_mean(name, set.names()) {
        Some(near) => format!("did you mean '{near}'? {make}"),
        None => make,
    }
}

/// Returns the agents that a workflow names and a set does not contain, each with the first node
/// that names it.
pub fn missing_agents<'p>(lowered: &'p Lowered, set: &AgentSet) -> Vec<(&'p str, usize)> {
    let mut missing: Vec<(&str, usize)> = Vec::new();
    for (at, node) in lowered.plan.nodes.iter().enumerate() {
        let asked = node.agent.as_deref().filter(|_| node.op == NodeOperation::Agent && !node.attached);
        if let Some(name) = asked.filter(|name| set.get(name).is_none())
            && !missing.iter().any(|(known, _)| *known == name)
        {
            missing.push((name, at));
        }
    }
    missing
}

/// Returns the findings about tools that nodes of a workflow request and that their model agents lack:
/// errors if tasks of the node would fail, else warnings.
pub fn lacking_tools(dialect: &dyn Dialect, lowered: &Lowered, set: &AgentSet) -> Vec<Diagnostic> {
    let plan = &lowered.plan;
    let asked = plan.nodes.iter().enumerate().filter(|(_, node)| node.op == NodeOperation::Agent);
    let agents = asked.filter_map(|(at, node)| Some((at, node, set.get(node.agent.as_deref()?)?)));
    let lacking = agents.flat_map(|(at, node, agent)| {
        let lacking = agent.lacking_tools(&dialect.node_request(plan, node)).into_iter();
        lacking.map(move |tool| (at, node, agent, tool))
    });
    let finding = |(at, node, agent, tool): (usize, &PlanNode, &Arc<Agent>, LackingTool)| {
        let (node, name, file) = (&node.id, agent.name(), agent.file().display());
        let message = format!("node '{node}' requests the tools '{}', which agent '{name}' lacks", tool.name);
        let code = code::MODEL_TOOL_MISSING_OR_CHANGED.as_str();
        let of_kind = if tool.is_fatal { Diagnostic::error } else { Diagnostic::warning };
        let finding = of_kind(code, message)
            .hint(format!("add an MCP server '{}' to {file}, or remove the tools from the node", tool.name));
        match lowered.places.get(at).copied().flatten() {
            Some(place) => finding.at(place),
            None => finding,
        }
    };
    lacking.map(finding).collect()
}

/// Fails if a node of a workflow requests tools without which its agent fails.
pub fn refuse_lacking_tools(loaded: &Loaded, set: &AgentSet) -> Result<(), Failure> {
    for lowered in &loaded.workflows {
        let mut findings = Diagnostics::new(lowered.warnings.sources.clone());
        findings.extend(lacking_tools(loaded.dialect, lowered, set));
        if findings.has_errors() {
            return Err(Failure::diagnostics(findings));
        }
    }
    Ok(())
}

fn unknown(name: &str) -> Fault {
    Fault::error(NO_SUCH_AGENT, format!("Agent '{name}' not found in registry")).with_retryable(false)
}
