//! Questions that wait for people, and their decisions.

use futures_util::StreamExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_documents::approval::{ApprovalCount, ApprovalDetails, OpenApproval};
use sinew_documents::execution::{PersonDecision, ShownWait, WaitKind, caller};
use sinew_documents::words;
use sinew_engine::Fact;
use sinew_execution::Execution;
use sinew_inspection::decision;
use sinew_inspection::record::Record;
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting;
use sinew_protocol::access::group_of;
use sinew_protocol::code;
use sinew_protocol::command::{ApproveCommand, Command, lacks_reason};
use sinew_protocol::{ExecutionId, Token};
use sinew_runtime::local;

use crate::approval_filter::{ApprovalFilter, review_fields};
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{MeshOperator, new_command_id};

/// Number of records fetched concurrently.
const AT_ONCE: usize = 16;
/// Maximum number of callees examined for a decision that was passed on.
const MAX_CALLEES: usize = 16;

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
    /// People and groups who may decide; anyone if empty.
    pub allowed: Vec<String>,
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
            allowed: self.wait.question.as_ref().map(|one| one.allowed.clone()).unwrap_or_default(),
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
    /// Lists the open questions that match, oldest first.
    pub async fn approvals(&self, filter: &ApprovalFilter) -> Result<Vec<OpenApproval>, Failure> {
        let mut open = self.client.open().await?;
        // An execution with other work in progress may still wait for a person.
        let is_wanted =
            |name: &str| filter.workflow.as_deref().is_none_or(|one| one.is_empty() || one == name);
        open.retain(|one| one.questions != Some(0) && is_wanted(&one.workflow));
        let records: Vec<Result<Record, Failure>> = futures_util::stream::iter(open)
            .map(|one| async move { self.record(&one.execution).await })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut rows = Vec::new();
        for record in records {
            match record {
                Ok(record) => {
                    let input = record.execution.ctx().input();
                    rows.extend(open_approvals(&record).into_iter().filter(|row| filter.takes(row, input)));
                }
                Err(failure) if failure.is_mesh_silent() => return Err(failure),
                // An execution that ended in the meantime no longer waits.
                Err(_) => {}
            }
        }
        rows.sort_by(|a, b| (a.wait.since, &a.execution).cmp(&(b.wait.since, &b.execution)));
        Ok(rows)
    }

    /// Counts the open questions of executions whose workflow and caller are accepted. Questions of
    /// owners that do not count them are missing.
    pub async fn approval_count(&self, opens: impl Fn(&str, &str) -> bool) -> Result<ApprovalCount, Failure> {
        let open = self.client.open().await?;
        let visible = open.iter().filter(|one| opens(&one.workflow, &caller(&one.caller)));
        Ok(ApprovalCount { open: visible.filter_map(|one| one.questions).sum::<u32>() as usize })
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
            (None, _) => {
                let failure = not_awaited(&record, node, &all);
                Err(self.with_earlier_decision(failure, &record, node).await)
            }
        }
    }

    /// Returns the question at its origin: an execution that waits for a callee answers through it.
    async fn at_its_place(&self, found: FoundApproval) -> Result<FoundApproval, Failure> {
        let Some(asked) = &found.wait.asked_in else { return Ok(found) };
        let Some(place) = &asked.execution else { return Ok(found) };
        let record = self.record(place).await?;
        let mut waits = waits_for_people(&record, false).into_iter();
        if let Some(wait) = waits.find(|wait| wait.activation == Some(asked.activation)) {
            Ok(FoundApproval { record, wait })
        } else {
            let failure = no_question(format!("execution {place} does not wait for a person"));
            Err(self.with_earlier_decision(failure, &record, None).await)
        }
    }

    /// Adds who decided and when to the failure of a late decision: on this node, if one is named, of
    /// the execution or of the callee that asked last.
    async fn with_earlier_decision(&self, failure: Failure, record: &Record, node: Option<&str>) -> Failure {
        if failure.code != code::NO_PERSON_AWAITED.as_str() {
            return failure;
        }
        let mut earlier = last_decision(record, node);
        if earlier.is_none()
            && let Some(callee) = asking_callees(&record.execution).first()
            && let Ok(record) = self.record(callee).await
        {
            earlier = last_decision(&record, None);
        }
        match earlier {
            Some(decision) => {
                Failure { message: format!("{}: {}", failure.message, decided(&decision)), ..failure }
            }
            None => failure,
        }
    }

    /// Returns the failure of a decision that the owner of the execution rejected. If another decision
    /// was faster, the failure contains its author and time.
    pub async fn rejected_decision(
        &self,
        execution: &ExecutionId,
        node: Option<&str>,
        reason: &str,
    ) -> Failure {
        let failure = Failure::new(FailureKind::Conflict, code::CLIENT_COMMAND_REFUSED.as_str(), reason);
        let Ok(record) = self.record(execution).await else { return failure };
        let is_open = waits_for_people(&record, false)
            .iter()
            .any(|wait| node.is_none() || wait.node.as_deref() == node);
        match last_decision(&record, node).filter(|_| !is_open) {
            Some(decision) => no_question(format!("{reason}: {}", decided(&decision))),
            None => failure,
        }
    }

    /// Returns the group as whose member the caller decides a question for these people; `None` if
    /// the caller decides under its own name.
    fn group_for<'a>(&self, allowed: &'a [String]) -> Option<&'a str> {
        if allowed.contains(&caller(self.client.mesh().caller())) {
            return None;
        }
        let is_own =
            |entry: &&String| group_of(entry).is_some_and(|group| self.groups.iter().any(|own| own == group));
        allowed.iter().find(is_own).map(String::as_str)
    }

    /// Answers a question, and waits until the answer is recorded.
    pub async fn decide(
        &self,
        AskingNode { execution, node, activation, allowed }: AskingNode,
        DecisionRequest { id, data, comment, reject }: DecisionRequest,
    ) -> Result<RecordedDecision, Failure> {
        if lacks_reason(reject, comment.as_deref()) {
            return Err(Failure::usage("a rejection needs a comment that states the reason"));
        }
        let (asked_in, asking) = (execution.clone(), node.clone());
        let group = self.group_for(&allowed);
        let member = group.is_some().then(|| self.client.mesh().caller().clone());
        let by = member.clone();
        let command = ApproveCommand { execution, node, activation, data, comment, reject, member };
        let (id, command) = (id.unwrap_or_else(new_command_id), Command::Approve(command));
        let verdict = match group {
            Some(group) => {
                let client = self.client.on_behalf_of(Token::of(group));
                Self { client, ..self.clone() }.verdict(id, command).await?
            }
            None => self.verdict(id, command).await?,
        };
        if !verdict.accepted {
            return Err(self.rejected_decision(&asked_in, asking.as_deref(), &verdict.reason).await);
        }
        Ok(RecordedDecision {
            execution: asked_in.to_string(),
            node: asking.unwrap_or_default(),
            status: if reject { "rejected" } else { "approved" },
            by: caller(by.as_ref().unwrap_or(&verdict.caller)),
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

/// Returns the last decision on a node, named by its id or label; on any node if none is named.
fn last_decision(record: &Record, node: Option<&str>) -> Option<PersonDecision> {
    let is_meant = |one: &PersonDecision| {
        node.is_none_or(|node| one.node == node || one.node.split('[').next() == Some(node))
    };
    decision::decisions(record).into_iter().rev().find(is_meant)
}

/// Formats a decision that was made earlier, with its author and time.
fn decided(decision: &PersonDecision) -> String {
    let PersonDecision { word, by, at, comment, .. } = decision;
    let by = by.as_ref().map(|by| format!(" by {}", words::one_line(by, 60))).unwrap_or_default();
    let comment = comment.as_ref().filter(|comment| !comment.is_empty());
    let comment = comment.map(|comment| format!(" ({})", words::one_line(comment, 200))).unwrap_or_default();
    format!("{}{by} at {at}{comment}", word.as_str())
}

/// Returns the executions below this one that asked a person, newest first.
pub fn asking_callees(execution: &Execution) -> Vec<ExecutionId> {
    let mut callees: Vec<ExecutionId> = Vec::new();
    let facts = execution.journal().iter().rev().flat_map(|round| round.facts.iter().rev());
    for fact in facts {
        if let Fact::CalleeWaits { wait: Some(wait), .. } = fact
            && let Some(execution) = &wait.execution
            && !callees.contains(execution)
        {
            callees.push(execution.clone());
            if callees.len() == MAX_CALLEES {
                break;
            }
        }
    }
    callees
}

fn open_approvals(record: &Record) -> Vec<OpenApproval> {
    waits_for_people(record, false).into_iter().map(|wait| open_approval(record, wait)).collect()
}

fn open_approval(record: &Record, wait: ShownWait) -> OpenApproval {
    let start = record.execution.state().start.as_ref();
    let question = wait.question.as_ref();
    let (prompt, data) = question.map_or(("", &Value::Null), |one| (one.prompt.as_str(), &one.data));
    OpenApproval {
        review: review_fields(prompt, data, record.execution.ctx().input()),
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
