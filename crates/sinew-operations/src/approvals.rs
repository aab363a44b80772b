//! Questions that wait for people, and their decisions.

use futures_util::StreamExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_documents::approval::{ApprovalDetails, OpenApproval};
use sinew_documents::execution::{ShownWait, WaitKind, caller};
use sinew_documents::timestamp::Timestamp;
use sinew_inspection::decision;
use sinew_inspection::record::Record;
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting;
use sinew_protocol::code;
use sinew_protocol::command::{ApproveCommand, Command, lacks_reason};
use sinew_protocol::{ExecutionId, Token};
use sinew_runtime::local;

use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{MeshOperator, new_command_id};

/// Number of records fetched concurrently.
const AT_ONCE: usize = 16;

/// A question and its execution.
#[derive(Debug)]
pub struct FoundApproval {
    /// The execution.
    pub record: Record,
    /// The question.
    pub wait: ShownWait,
}

/// The node that asks a person: in the execution that was named, or in one of its callees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskingNode {
    /// The execution.
    pub execution: ExecutionId,
    /// The node.
    pub node: Option<String>,
    /// Its activation.
    pub activation: Option<u32>,
}

/// Decision of a person.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionRequest {
    /// Identity of the request: a repeated one gets the same verdict. `None` for a new one.
    pub id: Option<Token>,
    /// The answer; `Null` for a plain approval or rejection.
    pub data: Value,
    /// Comment stored with the decision.
    pub comment: Option<String>,
    /// Whether the decision is a rejection.
    pub reject: bool,
}

/// Recorded decision.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordedDecision {
    /// Id of the execution.
    pub execution: String,
    /// Node that asked.
    pub node: String,
    /// `approved` or `rejected`.
    pub status: &'static str,
    /// Caller who is recorded with the decision.
    pub by: String,
}

impl FoundApproval {
    /// Returns the node that asks.
    pub fn asking_node(&self) -> AskingNode {
        AskingNode {
            execution: self.record.execution.id().clone(),
            node: self.wait.node.clone(),
            activation: self.wait.activation,
        }
    }

    /// Returns the question with the data to decide on.
    pub fn details(&self) -> ApprovalDetails {
        let approval = open_approval(&self.record, self.wait.clone());
        let input = self.record.execution.ctx().input().clone();
        ApprovalDetails { approval, input, decisions: decision::decisions(&self.record) }
    }
}

impl MeshOperator {
    /// Lists the open questions, those due first; of all workflows if none is named.
    pub async fn approvals(&self, workflow: Option<&str>) -> Result<Vec<OpenApproval>, Failure> {
        let mut open = self.client.open().await?;
        open.retain(|one| workflow.is_none_or(|name| name == one.workflow));
        // An execution with other work in progress may still wait for a person.
        let records: Vec<Result<Record, Failure>> = futures_util::stream::iter(open)
            .map(|one| async move { self.record(&one.execution).await })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut rows = Vec::new();
        for record in records {
            match record {
                Ok(record) => rows.extend(open_approvals(&record)),
                Err(failure) if failure.is_mesh_silent() => return Err(failure),
                // An execution that ended in the meantime no longer waits.
                Err(_) => {}
            }
        }
        rows.sort_by_key(|row| row.wait.until.map_or(u64::MAX, Timestamp::ms));
        Ok(rows)
    }

    /// Finds the open question of an execution. `node` selects one of several.
    pub async fn find_approval(
        &self,
        id: &ExecutionId,
        node: Option<&str>,
    ) -> Result<FoundApproval, Failure> {
        let record = self.record(id).await?;
        let all = waits_for_people(&record, true);
        let meant = |wait: &ShownWait| {
            let planned = wait.activation.map(|act| record.execution.ctx().node_of(act).id.as_str());
            node.is_none_or(|wanted| wait.node.as_deref() == Some(wanted) || planned == Some(wanted))
        };
        let mut found = all.iter().filter(|wait| meant(wait));
        match (found.next().cloned(), found.next()) {
            (Some(wait), None) => self.at_its_place(FoundApproval { record, wait }).await,
            (Some(_), Some(_)) => {
                let nodes: Vec<&str> = all.iter().filter_map(|wait| wait.node.as_deref()).collect();
                Err(Failure::usage(format!("several nodes wait for a person: {}", nodes.join(", ")))
                    .hint("choose one with --node"))
            }
            (None, _) => Err(not_awaited(&record, node, &all)),
        }
    }

    /// Returns the question at its origin: an execution that waits for a callee answers through it.
    async fn at_its_place(&self, found: FoundApproval) -> Result<FoundApproval, Failure> {
        let Some(asked) = &found.wait.asked_in else { return Ok(found) };
        let Some(place) = &asked.execution else { return Ok(found) };
        let record = self.record(place).await?;
        let mut waits = waits_for_people(&record, false).into_iter();
        match waits.find(|wait| wait.activation == Some(asked.activation)) {
            Some(wait) => Ok(FoundApproval { record, wait }),
            None => Err(no_question(format!("execution {place} does not wait for a person"))),
        }
    }

    /// Answers a question, and waits until the answer is recorded.
    pub async fn decide(
        &self,
        AskingNode { execution, node, activation }: AskingNode,
        DecisionRequest { id, data, comment, reject }: DecisionRequest,
    ) -> Result<RecordedDecision, Failure> {
        if lacks_reason(reject, comment.as_deref()) {
            return Err(Failure::usage("a rejection needs a comment that states the reason"));
        }
        let (asked_in, asking) = (execution.to_string(), node.clone().unwrap_or_default());
        let command = ApproveCommand { execution, node, activation, data, comment, reject };
        let verdict = self.signal_as(id.unwrap_or_else(new_command_id), Command::Approve(command)).await?;
        Ok(RecordedDecision {
            execution: asked_in,
            node: asking,
            status: if reject { "rejected" } else { "approved" },
            by: caller(&verdict.caller),
        })
    }
}

/// Returns the failure for a question that an execution does not ask: at this node, or at all.
fn not_awaited(record: &Record, node: Option<&str>, all: &[ShownWait]) -> Failure {
    let id = record.id();
    let waiting: Vec<&str> = all.iter().filter_map(|wait| wait.node.as_deref()).collect();
    let nodes = || record.plan().nodes.iter().map(|one| one.id.as_str());
    let failure = match node {
        Some(wanted) if nodes().all(|id| id != wanted) => {
            let text = format!("the workflow of execution {id} has no node '{wanted}'");
            let failure = Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text);
            if let Some(near) = sinew_source::did_you_mean(wanted, nodes()) {
                return failure.hint(format!("did you mean '{near}'?"));
            }
            failure
        }
        Some(wanted) => no_question(format!("node '{wanted}' of execution {id} does not wait for a person")),
        None => no_question(format!("execution {id} does not wait for a person")),
    };
    match waiting.as_slice() {
        [] => failure,
        waiting => failure.hint(format!("waiting nodes: {}", waiting.join(", "))),
    }
}

fn no_question(text: String) -> Failure {
    Failure::new(FailureKind::Conflict, code::NO_PERSON_AWAITED.as_str(), text)
        .hint("it may already be decided; see `sinew execution describe`")
}

fn open_approvals(record: &Record) -> Vec<OpenApproval> {
    waits_for_people(record, false).into_iter().map(|wait| open_approval(record, wait)).collect()
}

fn open_approval(record: &Record, wait: ShownWait) -> OpenApproval {
    let start = record.execution.state().start.as_ref();
    OpenApproval {
        wait,
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        caller: record.about.caller.clone(),
        path: start.map(|start| start.chain.clone()).unwrap_or_default(),
    }
}

/// Returns the questions of an execution, and optionally those of its callees.
fn waits_for_people(record: &Record, with_callees: bool) -> Vec<ShownWait> {
    let context = ViewContext::of(&record.execution, local::now(), &MeshPresence::default());
    let waits = waiting::waits(record, &context);
    let is_wanted =
        |wait: &ShownWait| wait.what == WaitKind::Person && (with_callees || wait.asked_in.is_none());
    waits.into_iter().filter(is_wanted).collect()
}
