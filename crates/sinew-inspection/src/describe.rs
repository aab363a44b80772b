//! `execution describe`: status, waits, the first failure and its causes, and recommended commands.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::Value;
use sinew_documents::execution::{
    ExecutionDescription, FailureCause, FailureDescription, NodeCounts, NodeWarning, ShownWait, WaitKind,
    caller,
};
use sinew_documents::model_usage::{ModelUsage, total_line};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext, Fact, Time};
use sinew_execution::{Execution, events};
use sinew_plan::NodeOperation;
use sinew_protocol::journal::Verdict;
use sinew_protocol::subject::Operation;

use crate::decision::decisions;
use crate::execution_status::status_of;
use crate::model_usage::model_usage;
use crate::node_rows;
use crate::record::Record;
use crate::view_context::{MeshPresence, ViewContext};
use crate::waiting;
use sinew_protocol::query::ExecutionStatus;

/// Maximum warnings per execution.
const MAX_WARNINGS: usize = 50;
/// Maximum size of an input in a recommended command.
const MAX_INPUT_BYTES: usize = 200;
/// Maximum waits and warnings in the text; the data contain all.
const SHOWN: usize = 10;

/// Describes an execution at `now`.
pub fn describe(record: &Record, now: Time, presence: &MeshPresence) -> ExecutionDescription {
    let state = record.execution.state();
    let status = status_of(state);
    let until = record.seen_until(now);
    let waiting = waiting::waits(record, &ViewContext::of(&record.execution, until, presence));
    let failure = failure(record);
    let next = next(record, status, &waiting);
    ExecutionDescription {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        version: record.execution.program().graph.digest().to_owned(),
        dialect: record.plan().dialect.clone(),
        status,
        about: record.about.clone(),
        started: state.started_at.into(),
        ended: state.ended.then_some(state.at.into()),
        stopped: record.is_abandoned().then(|| record.at().into()),
        dry_run: record.is_dry_run(),
        duration_ms: until.saturating_sub(state.started_at),
        paused_ms: paused_ms(&record.execution, until),
        nodes: counts(record, until),
        input: record.execution.ctx().input().clone(),
        output: state.outcome.as_ref().and_then(|outcome| outcome.output.as_deref().cloned()),
        native: record.execution.native_result(),
        waiting,
        failure,
        warnings: warnings(&record.execution),
        retries: state.reopened,
        models: model_usage(record),
        decisions: decisions(record),
        commands: record.commands.clone(),
        next,
    }
}

/// Returns the problems that did not fail a node, in the order of the facts.
pub fn warnings(execution: &Execution) -> Vec<NodeWarning> {
    let mut found = Vec::new();
    execution.replay(|ctx, fact| {
        let (act, message) = match fact {
            Fact::Noted { act, note } => (*act, noted(note)),
            Fact::Completed { act, output, .. } => {
                let is_loop = matches!(ctx.node_of(*act).op, NodeOperation::Loop { .. });
                (Some(*act), Some(&output.value).filter(|_| is_loop).and_then(|output| exhausted(output)))
            }
            _ => return,
        };
        if let Some(message) = message.filter(|_| found.len() < MAX_WARNINGS) {
            found.push(NodeWarning { node: act.map(|act| ctx.node_of(act).id.clone()), message });
        }
    });
    found
}

/// Describes the problem in a note of an adapter, if it is one.
fn noted(note: &Value) -> Option<String> {
    let text = |kind: &str, key: &str| note[kind][key].as_str().unwrap_or_default().to_owned();
    if let Some(failed) = note.get("conversion_failed") {
        let line = failed["line"].as_u64().map(|line| format!(" at line {line}")).unwrap_or_default();
        let (connection, error) =
            (text("conversion_failed", "connection"), text("conversion_failed", "error"));
        return Some(format!(
            "the conversion function of '{connection}' raised{line}: {error}; the value was passed on unconverted"
        ));
    }
    if note.get("schema_violation").is_some() {
        let (side, member) = (text("schema_violation", "side"), text("schema_violation", "member"));
        return Some(format!("the {side} member '{member}' {}", text("schema_violation", "problem")));
    }
    let ports = note.get("ports_without_edge")?;
    let names = |key: &str| {
        let names: Vec<&str> =
            ports[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        format!("'{}'", names.join("', '"))
    };
    Some(format!(
        "the agent returned the ports {}, but edges start at {}: nothing runs after this node",
        names("ports"),
        names("edges")
    ))
}

/// Describes that a loop ended because it reached its maximum of iterations.
fn exhausted(output: &Value) -> Option<String> {
    node_rows::exhausted_after(output).map(|count| {
        format!("the loop ended after its maximum of {count} iterations, although its condition still held")
    })
}

/// Returns the milliseconds in which an execution was paused, or ended before a retry.
fn paused_ms(execution: &Execution, now: Time) -> u64 {
    let (mut total, mut since) = (0, None);
    for round in execution.journal() {
        for fact in &round.facts {
            match fact {
                Fact::Paused { .. } | Fact::Resumed | Fact::Ended | Fact::Reopened { .. } => {
                    total += since.take().map_or(0, |since| round.at.saturating_sub(since));
                    since = matches!(fact, Fact::Paused { .. } | Fact::Ended).then_some(round.at);
                }
                _ => {}
            }
        }
    }
    let is_paused = execution.state().paused.is_some();
    total + since.filter(|_| is_paused).map_or(0, |since| now.saturating_sub(since))
}

/// Counts nodes by status.
pub fn counts(record: &Record, now: Time) -> NodeCounts {
    let rows = node_rows::rows(&record.execution, now);
    let count = |wanted: fn(NodeStatus) -> bool| rows.iter().filter(|row| wanted(row.status)).count();
    let state = record.execution.state();
    let children = || {
        let sets = state.acts.iter().filter_map(|act| act.children.as_deref());
        sets.filter(|set| set.list.len() > 1)
    };
    let has_ended = |act: &ActivationId| state.act(*act).end.is_some();
    NodeCounts {
        items: children().map(|set| set.list.len()).sum(),
        items_over: children().map(|set| set.acts.iter().filter(|act| has_ended(act)).count()).sum(),
        total: rows.len(),
        over: count(NodeStatus::is_over),
        running: count(|word| word == NodeStatus::Running),
        waiting: count(|word| word == NodeStatus::Waiting),
        failed: count(|word| word == NodeStatus::Failed),
        skipped: count(|word| word == NodeStatus::Skipped),
    }
}

/// Returns the first failure and its causes; `None` if no failure was final.
pub fn failure(record: &Record) -> Option<FailureDescription> {
    let state = record.execution.state();
    let ctx = record.execution.ctx();
    let mut chain = Vec::new();
    let outcome = state.outcome.as_ref();
    if let Some(fault) = outcome.and_then(|outcome| outcome.fault.as_ref()) {
        chain.push(FailureCause {
            node: None,
            agent: None,
            attempt: None,
            at: state.ended.then_some(state.at.into()),
            fault: fault.clone(),
        });
    }
    let failed = failed_path(record);
    if chain.is_empty() && failed.is_empty() {
        return None;
    }
    for one in failed.iter().copied() {
        let activation = state.act(one);
        if let Some(fault) = &activation.fault {
            let (node, agent) = (Some(events::label(&ctx, one)), blamed_agent(&ctx, one));
            let (at, fault) = (activation.ended_at.map(Timestamp), fault.clone());
            chain.push(FailureCause { node, agent, attempt: None, at, fault });
        }
    }
    let inner = failed.last().copied();
    if let Some(act) = inner {
        chain.extend(attempts(record, act));
    }
    chain.dedup_by(|later, earlier| {
        later.fault == earlier.fault && later.node == earlier.node && later.attempt.is_none()
    });
    Some(FailureDescription { node: inner.map(|act| events::label(&ctx, act)), chain })
}

/// Returns the activation that caused the failure, the child that caused its failure, and so on: a map
/// failed because its child did.
fn failed_path(record: &Record) -> Vec<ActivationId> {
    let state = record.execution.state();
    let first = state.failed.as_ref().and_then(|(act, _)| *act);
    let mut act = state.outcome.as_ref().and_then(|outcome| outcome.cause).or(first);
    let mut path = Vec::new();
    while let Some(one) = act.filter(|act| state.acts.len() > *act as usize) {
        path.push(one);
        let children = state.act(one).children.as_ref();
        act = children.and_then(|children| children.failed).filter(|child| *child != one);
    }
    path
}

/// Returns the agent that caused the failure of an activation: the one whose request failed, otherwise
/// the one whose output was rejected.
fn blamed_agent(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<String> {
    let one = ctx.act(act);
    let is_answered = one.replies.last().is_some_and(|reply| reply.result.is_ok());
    let has_helped = one.last_task().is_some_and(|task| task.is_helper());
    if is_answered && has_helped { node_rows::work_agent(ctx, act) } else { node_rows::asked_agent(one) }
}

/// Returns the faults of an activation's attempts, in order.
fn attempts(record: &Record, wanted: ActivationId) -> Vec<FailureCause> {
    let node = events::label(&record.execution.ctx(), wanted);
    let (mut found, mut agent) = (Vec::new(), None);
    for round in record.execution.journal() {
        for fact in &round.facts {
            match fact {
                Fact::Dispatched { act, ask, .. } if *act == wanted && !ask.is_evaluation() => {
                    agent = Some(ask.target.name().to_owned());
                }
                Fact::Replied { act, attempt, result: Err(fault), .. } if *act == wanted => {
                    let (node, agent, fault) = (Some(node.clone()), agent.clone(), fault.clone());
                    let (attempt, at) = (Some(*attempt), Some(round.at.into()));
                    found.push(FailureCause { node, agent, attempt, at, fault });
                }
                _ => {}
            }
        }
    }
    // The fault of a single attempt is that of its activation.
    if found.len() < 2 { Vec::new() } else { found }
}

/// Returns commands that are useful in the current status.
fn next(record: &Record, status: ExecutionStatus, waits: &[ShownWait]) -> Vec<String> {
    let id = record.reference();
    if record.is_of_one_process() {
        let command = if status == ExecutionStatus::Success { "result" } else { "tree" };
        let again = (status != ExecutionStatus::Success).then(|| start_again_command(record, waits));
        return again.into_iter().chain([format!("sinew execution {command} {id}")]).collect();
    }
    let mut next = Vec::new();
    for wait in waits.iter().filter(|wait| wait.what == WaitKind::Person).take(3) {
        let node = wait.node.as_deref().unwrap_or_default();
        next.push(format!("sinew approval approve {id} --node {}", words::shell(node)));
    }
    match status {
        ExecutionStatus::Failure | ExecutionStatus::Cancelled => {
            if record
                .execution
                .state()
                .acts
                .iter()
                .any(|one| matches!(one.end, Some(ActivationEnd::Failed | ActivationEnd::Cancelled)))
            {
                next.push(if is_decided(record) {
                    format!("sinew execution rerun {id} --latest")
                } else {
                    format!("sinew execution retry {id} --dry-run")
                });
            }
            next.push(format!("sinew execution tree {id}"));
        }
        ExecutionStatus::Paused => next.push(format!("sinew execution resume {id}")),
        ExecutionStatus::Running | ExecutionStatus::Waiting => {
            next.push(format!("sinew execution watch {id}"));
        }
        ExecutionStatus::Success => next.push(format!("sinew execution result {id}")),
    }
    next
}

/// Returns true if the plan and the values alone caused the failure, so that a retry repeats it: the
/// innermost failed node called no agent and asked no person.
fn is_decided(record: &Record) -> bool {
    let state = record.execution.state();
    let ctx = record.execution.ctx();
    let Some(act) = failed_path(record).last().copied() else { return false };
    let one = state.act(act);
    one.attempt == 0 && one.fault.is_some() && ctx.node_of(act).op != NodeOperation::Human
}

/// Returns the `sinew run` command that repeats an in-process execution, with answers to its questions.
fn start_again_command(record: &Record, waits: &[ShownWait]) -> String {
    let mut command = "sinew run FILE --local".to_owned();
    let ctx = record.execution.ctx();
    let input = ctx.input();
    if !input.is_null() && *input != serde_json::json!({}) {
        let text = input.to_string();
        let text = if text.len() > MAX_INPUT_BYTES { "@INPUT.json" } else { &text };
        let _ = write!(command, " -i {}", words::shell(text));
    }
    for wait in waits.iter().filter(|wait| wait.what == WaitKind::Person).take(3) {
        let Some(act) = wait.activation else { continue };
        let answer = format!("{}=approve", ctx.node_of(act).id);
        let _ = write!(command, " --answer {}", words::shell(&answer));
    }
    command
}

/// Formats the description for people.
pub fn text(description: &ExecutionDescription, now: Time, color: bool) -> String {
    let mut out = String::new();
    let (on, off) = if color { (words::status_color(description.status), "\u{1b}[0m") } else { ("", "") };
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<11} {value}");
    };
    line("execution", &description.execution);
    line(
        "workflow",
        &format!(
            "{}@{} ({})",
            words::name(&description.workflow),
            words::short(&description.version),
            description.dialect
        ),
    );
    let counts = description.nodes;
    let mut nodes = format!("{}/{}", counts.over, words::count(counts.total, "node"));
    for (count, word) in [
        (counts.running, "running"),
        (counts.waiting, "waiting"),
        (counts.failed, "failed"),
        (counts.skipped, "skipped"),
    ] {
        if count > 0 {
            let _ = write!(nodes, ", {count} {word}");
        }
    }
    let time = words::duration(description.duration_ms);
    line("status", &format!("{on}{}{off}, {time}, {nodes}", words::status_word(description.status)));
    if description.dry_run {
        line("dry run", "no agent was called, and every output was null");
    }
    let moment = |at: Timestamp| format!("{at} ({})", words::ago(at.ms(), now));
    line("started", &moment(description.started));
    if let Some(ended) = description.ended {
        line("ended", &moment(ended));
    }
    if let Some(stopped) = description.stopped {
        line("stopped", &format!("{}; the process that ran it has ended", moment(stopped)));
    }
    let about = &description.about;
    for (name, value) in [("caller", &about.caller), ("user", &about.user), ("session", &about.session)] {
        if !value.is_empty() {
            line(name, &words::one_line(value, 100));
        }
    }
    if let Some(key) = &about.idempotency_key {
        line("key", &words::one_line(key, 200));
    }
    if let Some(parent) = &about.parent {
        line("called by", &words::name(parent));
    }
    if !about.labels.is_empty() {
        let labels: Vec<String> = about.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        line("labels", &words::one_line(&labels.join(" "), 200));
    }
    if description.retries > 0 {
        line("retried", &words::count(description.retries as usize, "time"));
    }
    line("input", &words::one_line(&description.input.to_string(), 200));
    if let Some(output) = &description.output {
        line("output", &words::one_line(&output.to_string(), 200));
    }
    waiting_text(&mut out, &description.waiting);
    if let Some(failure) = &description.failure {
        failure_text(&mut out, failure, description.status);
    }
    models_text(&mut out, &description.models);
    warnings_text(&mut out, description);
    if !description.decisions.is_empty() {
        out.push_str("decisions\n");
        for decision in &description.decisions {
            let _ = writeln!(out, "  {}", decision.line(now));
        }
    }
    commands_text(&mut out, &description.commands);
    out.push_str("next\n");
    for command in &description.next {
        let _ = writeln!(out, "  {}", words::name(command));
    }
    out
}

fn models_text(out: &mut String, models: &[ModelUsage]) {
    if models.is_empty() {
        return;
    }
    out.push_str("models\n");
    for usage in models {
        let _ = writeln!(out, "  {}: {}", words::name(&usage.node), usage.line());
    }
    if let Some(all) = total_line(models) {
        let _ = writeln!(out, "  all: {all}");
    }
}

fn warnings_text(out: &mut String, description: &ExecutionDescription) {
    if !description.warnings.is_empty() {
        out.push_str("warnings\n");
        for warning in description.warnings.iter().take(SHOWN) {
            let node = warning.node.as_deref().map(|node| format!("{node}: ")).unwrap_or_default();
            let _ = writeln!(out, "  {}{}", words::name(&node), words::one_line(&warning.message, 300));
        }
        if description.warnings.len() > SHOWN {
            let _ = writeln!(out, "  and {} more", description.warnings.len() - SHOWN);
        }
    }
}

fn commands_text(out: &mut String, commands: &[Verdict]) {
    // Accepted decisions are listed above, with their comments.
    let is_told = |verdict: &&Verdict| !(verdict.op == Operation::Approve && verdict.accepted);
    let told: Vec<&Verdict> = commands.iter().filter(is_told).collect();
    if !told.is_empty() {
        out.push_str("commands\n");
        for verdict in told {
            let word = if verdict.accepted { "accepted" } else { "rejected" };
            let reason =
                if verdict.reason.is_empty() { String::new() } else { format!(": {}", verdict.reason) };
            // Approvals and rejections are the same command.
            let op = if verdict.op == Operation::Approve { "decision" } else { verdict.op.as_str() };
            let who = caller(&verdict.caller);
            let _ = writeln!(
                out,
                "  {op} by {}: {word}{}",
                words::one_line(&who, 60),
                words::one_line(&reason, 120)
            );
        }
    }
}

fn waiting_text(out: &mut String, waits: &[ShownWait]) {
    if waits.is_empty() {
        return;
    }
    out.push_str("waiting\n");
    for wait in waits.iter().take(SHOWN) {
        let node = wait.node.as_deref().unwrap_or("the execution");
        let _ = writeln!(out, "  {}: for {}", words::name(node), words::name(&wait.text));
        if let Some(question) = &wait.question {
            let _ = writeln!(out, "    question: {}", words::one_line(&question.prompt, 200));
            if !question.data.is_null() {
                let _ = writeln!(out, "    data: {}", words::one_line(&question.data.to_string(), 200));
            }
        }
    }
    if waits.len() > SHOWN {
        let _ = writeln!(out, "  and {} more", waits.len() - SHOWN);
    }
}

fn failure_text(out: &mut String, failure: &FailureDescription, status: ExecutionStatus) {
    let word = if status == ExecutionStatus::Cancelled { "cancelled" } else { "failed" };
    let node = failure.node.as_ref().map(|node| format!(" at {}", words::name(node))).unwrap_or_default();
    let _ = writeln!(out, "{word}{node}");
    for cause in &failure.chain {
        let who = match (&cause.node, &cause.agent, cause.attempt) {
            (Some(node), Some(agent), Some(attempt)) => format!("{node} ({agent}, attempt {attempt}): "),
            (Some(node), Some(agent), None) => format!("{node} ({agent}): "),
            (Some(node), None, _) => format!("{node}: "),
            (None, ..) => String::new(),
        };
        let message = words::one_line(&cause.fault.message, 300);
        let _ = writeln!(out, "  {}{message} [{}]", words::name(&who), words::name(&cause.fault.code));
        for detail in cause.fault.details.iter().take(5) {
            let _ = writeln!(out, "    {}", words::one_line(detail, 200));
        }
    }
}
