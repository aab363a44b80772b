//! Scripted tests of one shard: a line is an input, `|`, and all its consequences.
//!
//! Inputs: `start ID WORKFLOW`, `cancel|pause|resume|approve|retry ID`, `ID.NODE ok|fail|hard|late|poison|bad`, `at MS`,
//! `archive ID`, `answered` (all parents of rejected children), `evict`, `compact`, `takeover`, `lose`, `reread`, `keep WORKFLOW` (it is paused), `hold ID`, `outage MS` (an outage has ended; agents have this time to deliver results), `at MS unread` (a result is not read), `all COMMANDS` (`;` between them: one turn).
//! Additions: `asked` (a start by request), `by CALLER`, `from AGENT`, `try N`, `id ID` (of the command), `forged`, `chain A,B`, `node NODE`. `again` is the
//! last message again, `reread` all messages again; `begin PLACE` is the start of a child. `report` delivers the last report that
//! a person is waited for, `report forged` with the key of another mesh; `callee TASK ID WORKFLOW` starts an execution during a
//! task.
//!
//! Consequences: `began`, `repeated`, `late`, `foreign`, `unusable`, `loaded`, `yes`/`no REASON` (verdicts), `task ID.NODE#N`,
//! `drop ID.NODE#N` (cancelled), `waits ID` and `continues ID` (reports to the caller of an execution), `child ID.NODE#N`, `evaluate`, `finish ID STATUS`, `rejected`, `aside CODE`
//! (quarantined), `stored`, `purged N` (remaining messages), `held ID`, `lost`; `-` for none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_engine::Time;
use sinew_protocol::behalf::OnBehalf;
use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::journal::{Commit, ExecutionRecord};
use sinew_protocol::person_wait::{CallingRef, WaitReport};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Fault, ResultKey, ResultToken, Subject, TaskId, Token};

use super::kit::{
    FactCounter, NoSchemas, answer, answer_with_usage, config, execution, key, library, program_by_digest,
    read_inbox,
};
use crate::in_flight::ShardReport;
use crate::intake::{Found, InboxMessage, InputStream, Lookup, ShardInput};
use crate::journal_reader::JournalReader;
use crate::notice::ShardNotice;
use crate::opening::ShardOpening;
use crate::outgoing::{Outgoing, StartDecision, child_start, is_for_workflow, result_subject, wait_command};
use crate::state::{ShardConfig, ShardState};
use crate::takeover_guard::TakeoverGuard;
use crate::timer_check::InboxEnds;
use sinew_execution::{Call, TaskKey};

/// A shard with its journal and its archive.
pub(super) struct Story {
    pub(super) state: ShardState,
    config: Arc<ShardConfig>,
    journal: Vec<(u64, Commit)>,
    sequence: u64,
    history: BTreeMap<ExecutionId, ExecutionRecord>,
    ended: BTreeMap<ExecutionId, (ExecutionRecord, u32)>,
    tasks: BTreeMap<String, Call>,
    /// The attempt of each task id.
    attempts: BTreeMap<TaskId, TaskKey>,
    /// Child starts by the execution's id.
    children: BTreeMap<String, StartCommand>,
    messages: Vec<(InputStream, Subject, Vec<u8>)>,
    /// The last report to a caller.
    report: Option<WaitReport>,
    /// Names of paused workflows.
    paused: BTreeSet<String>,
    now: Time,
    commands: u64,
    /// Children whose parents were notified that they could not be started.
    rejected: Vec<ExecutionId>,
    loses: bool,
    /// Short names of child executions.
    names: BTreeMap<ExecutionId, String>,
}

/// Runs a script and compares the consequences of each line.
#[track_caller]
pub(super) fn check(script: &str) {
    check_with(config("me", 0, 1), script);
}

/// Runs a script with this shard config.
#[track_caller]
pub(super) fn check_with(config: ShardConfig, script: &str) {
    let mut story = Story::new(config);
    let mut told = String::new();
    let mut expected = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (input, consequences) = line.split_once('|').unwrap_or((line, ""));
        let follows = story.tell(input.trim());
        let follows = if follows.is_empty() { "-".to_owned() } else { follows.join(", ") };
        let _ = writeln!(told, "{} | {follows}", input.trim());
        let _ = writeln!(expected, "{} | {}", input.trim(), consequences.trim());
    }
    assert_eq!(told, expected, "\n{told}");
}

impl Story {
    pub(super) fn new(config: ShardConfig) -> Self {
        let config = Arc::new(config);
        let opening = open(&config, &[], &[]);
        let (state, _) = opening.finish();
        let mut story = Self {
            state,
            config,
            journal: Vec::new(),
            sequence: 0,
            history: BTreeMap::new(),
            ended: BTreeMap::new(),
            tasks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            children: BTreeMap::new(),
            messages: Vec::new(),
            report: None,
            paused: BTreeSet::new(),
            now: 1_000,
            commands: 0,
            rejected: Vec::new(),
            loses: false,
            names: BTreeMap::new(),
        };
        story.takeover(&mut Vec::new(), &[]);
        story
    }

    /// Handles a line; returns the consequences.
    pub(super) fn tell(&mut self, line: &str) -> Vec<String> {
        let mut follows = Vec::new();
        if let Some(all) = line.strip_prefix("all ") {
            for one in all.split(';') {
                self.input(one.trim(), &mut follows);
            }
        } else {
            self.input(line, &mut follows);
        }
        self.turn(&mut follows);
        follows
    }

    fn input(&mut self, line: &str, follows: &mut Vec<String>) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let option = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        match words[..] {
            ["at", ms, ..] => {
                self.now = 1_000 + ms.parse::<Time>().unwrap();
                let results = if line.ends_with(" unread") { u64::MAX } else { 0 };
                self.state.handle_timeout(&InboxEnds { results, ..read_inbox(self.now) });
            }
            ["archive", id, ..] => {
                let execution = self.id(id);
                let (record, end_number) = self.ended[&execution].clone();
                self.history.insert(execution.clone(), record);
                let input = ShardInput::Archived { execution, end_number };
                self.state.handle_input(self.now, input, &NoSchemas);
            }
            ["answered"] => {
                for execution in std::mem::take(&mut self.rejected) {
                    let input = ShardInput::Archived { execution, end_number: 0 };
                    self.state.handle_input(self.now, input, &NoSchemas);
                }
            }
            ["close", id, end_number] => {
                let input = ShardInput::Archived {
                    execution: execution(id),
                    end_number: end_number.parse().unwrap(),
                };
                self.state.handle_input(self.now, input, &NoSchemas);
            }
            ["evict"] => {
                let limit = std::mem::replace(&mut self.state.table.memory_limit_bytes, 0);
                self.state.table.evict();
                self.state.table.evict();
                self.state.table.memory_limit_bytes = limit;
            }
            ["takeover"] => self.takeover(follows, &[]),
            ["hold", id] => self.takeover(follows, &[id]),
            ["outage", ms] => self.state.handle_outage(self.now, ms.parse().unwrap()),
            ["lose"] => self.loses = true,
            ["again"] => {
                let (stream, subject, body) = self.messages.last().unwrap().clone();
                self.message(stream, subject, body, follows);
            }
            ["keep", workflow] => drop(self.paused.insert((*workflow).to_owned())),
            ["reread"] => {
                for (stream, subject, body) in self.messages.clone() {
                    self.message(stream, subject, body, follows);
                }
            }
            ["report", ..] => {
                let report = self.report.clone().unwrap();
                let key = if words.contains(&"forged") { ResultKey::new([9; 32]) } else { key() };
                let (id, command) = wait_command(report, &key);
                self.command("exec", &command, Some(id.as_str()), follows);
            }
            ["callee", place, id, workflow] => {
                let call = self.tasks[place].clone();
                let mut start = StartCommand::new(execution(id), workflow, Value::Null);
                start.calling =
                    Some(CallingRef { execution: call.execution.clone(), task: call.task.clone() });
                start.behalf = Some(OnBehalf::of(&key(), &start.execution, Token::of("agent")));
                self.command("exec", &Command::Start(Box::new(start)), None, follows);
            }
            ["begin", id] => {
                let start = self.children[id].clone();
                self.command("exec", &Command::Start(Box::new(start)), None, follows);
            }
            ["start", id, workflow, ..] => {
                let mut start = StartCommand::new(execution(id), workflow, json!({ "n": option("n") }));
                if let Some(chain) = option("chain") {
                    start.chain = chain.split(',').map(str::to_owned).collect();
                    start.depth = start.chain.len() as u32;
                }
                start.version = option("version").map(str::to_owned);
                start.input_artifact =
                    option("artifact").map(|name| format!("artifact://a/b/c/{name}?version=0"));
                start.idempotency_key = option("key").map(str::to_owned);
                if let Some(mode) = option("mode") {
                    start.mode = json!(mode);
                }
                let caller = option("by").unwrap_or("ada");
                if words.contains(&"asked") {
                    self.request(caller, &start);
                } else {
                    self.command(caller, &Command::Start(Box::new(start)), None, follows);
                }
            }
            [op @ ("cancel" | "pause" | "resume" | "approve" | "retry"), id, ..] => {
                let mut body = json!({ "execution": self.id(id).as_str() });
                for name in ["reason", "node"] {
                    if let Some(text) = option(name) {
                        body[name] = json!(text);
                    }
                }
                if words.contains(&"reject") {
                    body["reject"] = json!(true);
                    body["comment"] = json!("no");
                }
                let operation = Operation::parse(op).unwrap();
                let body = serde_json::to_vec(&body).unwrap();
                let id_of = Token::of(option("id").unwrap_or("any"));
                let command = Command::read(operation, &id_of, &body).unwrap();
                self.command(option("by").unwrap_or("ada"), &command, option("id"), follows);
            }
            ["garbage", stream] => {
                let stream = if stream == "results" { InputStream::Results } else { InputStream::Commands };
                let subject = Subject::Query { shard: 0 };
                self.message(stream, subject, b"{".to_vec(), follows);
            }
            [place, how, ..] if place.contains('.') => {
                let attempt = option("try").unwrap_or("1");
                let call = self.tasks[&format!("{place}#{attempt}")].clone();
                let agent = option("from").unwrap_or(call.ask.target.name()).to_owned();
                let (is_forged, has_usage) = (words.contains(&"forged"), words.contains(&"used"));
                self.result(&call, (how, has_usage), &agent, is_forged, follows);
            }
            _ => panic!("no such input: {line}"),
        }
    }

    fn result(
        &mut self,
        call: &Call,
        (how, has_usage): (&str, bool),
        agent: &str,
        is_forged: bool,
        follows: &mut Vec<String>,
    ) {
        let result = match how {
            "ok" => Ok(json!({ "v": 1 })),
            "poison" => Ok(json!({ "poison": true })),
            "fail" => Err(Fault::failure("failed", "it failed")),
            "hard" => Err(Fault::failure("hard", "it failed for good").with_retryable(false)),
            "late" => Err(Fault::timeout(sinew_protocol::code::AGENT_TOO_LATE.as_str(), "too late")),
            "bad" | "other" => Ok(Value::Null),
            other => panic!("no such result: {other}"),
        };
        let key = if is_forged { ResultKey::new([9; 32]) } else { key() };
        let subject = Subject::Result {
            shard: 0,
            agent: Token::of(agent),
            execution: call.execution.clone(),
            task: call.task.clone(),
            token: ResultToken::of(&key, &call.task),
        };
        let body = match how {
            "bad" => b"{\"type\":\"workflow_node_result\"".to_vec(),
            "other" => {
                let other = TaskId::of(&call.execution, &call.activation, 77);
                answer(&other, result)
            }
            _ if has_usage => answer_with_usage(&call.task, result),
            _ => answer(&call.task, result),
        };
        self.message(InputStream::Results, subject, body, follows);
    }

    fn command(&mut self, caller: &str, command: &Command, id: Option<&str>, follows: &mut Vec<String>) {
        self.commands += 1;
        let execution = command.execution();
        let id = match command {
            Command::Start(_) => Token::parse(execution.as_str()).unwrap(),
            _ => Token::of(&id.map_or_else(|| format!("c{}", self.commands), str::to_owned)),
        };
        let operation = command.operation();
        let subject = Subject::Command { shard: 0, operation, caller: Token::of(caller), id };
        self.message(InputStream::Commands, subject, command.to_json().into_bytes(), follows);
    }

    fn message(&mut self, stream: InputStream, subject: Subject, body: Vec<u8>, follows: &mut Vec<String>) {
        let seq = self.messages.len() as u64 + 1;
        let message = InboxMessage { stream, seq, subject: Some(&subject), body: &body, traceparent: None };
        let mut pending = self.state.decode(&message);
        follows.extend(pending.take_quarantine().map(|reason| format!("aside {}", reason.code)));
        while let Some(lookup) = pending.lookup() {
            let found = self.find(lookup);
            pending.supply(found);
        }
        self.state.handle_position(stream, seq, 0);
        self.state.handle_input(self.now, pending.finish(), &NoSchemas);
        self.messages.push((stream, subject, body));
    }

    fn find(&self, lookup: Lookup) -> Found {
        let none = |text: &str| Fault::invalid("none", text);
        match lookup {
            Lookup::Record(execution) => {
                Found::Record(Ok(self.history.get(&execution).cloned().map(Box::new)))
            }
            Lookup::Program { workflow, .. } => Found::Start {
                program: library().get(&workflow).cloned().ok_or_else(|| none("no such workflow")),
                paused: self.paused.contains(&workflow).then(|| "workflow paused by ada: no".to_owned()),
            },
            Lookup::Plan(digest) => {
                Found::Program(program_by_digest(&digest).ok_or_else(|| none("no such plan")))
            }
            Lookup::Value(address) if address.contains("gone") => Found::Value(Err(none("no such value"))),
            Lookup::Value(address) => Found::Value(Ok(json!(address))),
            Lookup::Result { execution, task, agent } => {
                let token = ResultToken::of(&key(), &task);
                let subject = Subject::Result { shard: 0, agent, execution, task, token };
                let stored = self.messages.iter().find(|(_, stored, _)| *stored == subject);
                Found::Result(Ok(stored.map(|(_, _, body)| body.clone().into())))
            }
        }
    }

    /// Sends a start by request to the shard.
    fn request(&mut self, caller: &str, start: &StartCommand) {
        let (caller, id) = (Token::of(caller), Token::parse(start.execution.as_str()).unwrap());
        let body = Command::Start(Box::new(start.clone())).to_json();
        let reply = "answer".to_owned();
        let pending = self.state.decode_start_request(&caller, &id, body.as_bytes(), None, reply);
        let mut pending = pending.expect("a start that can be read");
        while let Some(lookup) = pending.lookup() {
            let found = self.find(lookup);
            pending.supply(found);
        }
        self.state.handle_input(self.now, pending.finish(), &NoSchemas);
    }

    /// Stores the decisions, and sends the resulting messages.
    fn turn(&mut self, follows: &mut Vec<String>) {
        for notice in self.state.take_notices() {
            follows.extend(match notice {
                ShardNotice::Started(id) => Some(format!("began {}", self.name(&id))),
                ShardNotice::StartRepeated(id) => Some(format!("repeated {}", self.name(&id))),
                ShardNotice::ResultLate { .. } => Some("late".to_owned()),
                ShardNotice::ResultForeign { .. } => Some("foreign".to_owned()),
                ShardNotice::ResultUnusable { .. } => Some("unusable".to_owned()),
                ShardNotice::ExecutionsLoaded(count) => Some(format!("loaded {count}")),
                ShardNotice::CommandDecided { .. } => None,
            });
        }
        let (positions, read) = (self.state.positions(), self.messages.len() as u64);
        assert!(positions.commands <= read && positions.results <= read, "positions pass what was read");
        if let Some(pending) = self.state.poll_commit() {
            assert_eq!(pending.after, self.sequence, "a commit names the position that it comes after");
            assert!(self.state.poll_outgoing().is_none(), "nothing leaves before its commit is stored");
            if std::mem::take(&mut self.loses) {
                self.state.handle_lost();
                follows.push("lost".to_owned());
            } else {
                self.sequence += 1;
                self.journal.push((self.sequence, Commit::decode(&pending.body).unwrap()));
                self.state.handle_stored(self.sequence);
            }
        }
        while let Some(outgoing) = self.state.poll_outgoing() {
            follows.extend(self.sent(outgoing));
        }
        for report in self.state.take_reports(&mut FactCounter::default()) {
            if let ShardReport::Verdict { verdict, .. } = report {
                let reason = verdict.reason.split(':').next().unwrap_or_default().to_owned();
                follows.push(if verdict.accepted { "yes".to_owned() } else { format!("no {reason}") });
            }
        }
        if let Some(keep) = self.state.end_turn() {
            self.journal.retain(|(seq, _)| *seq >= keep);
            self.state.handle_purged();
            follows.push(format!("purged {}", self.journal.len()));
        }
    }

    fn name(&self, id: &ExecutionId) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Returns the execution with this id or short name.
    fn id(&self, name: &str) -> ExecutionId {
        let named = self.names.iter().find(|(_, short)| *short == name).map(|(id, _)| id.clone());
        named.unwrap_or_else(|| execution(name))
    }

    fn sent(&mut self, outgoing: Outgoing) -> Option<String> {
        let name = |id: &ExecutionId| self.names.get(id).cloned().unwrap_or_else(|| id.to_string());
        let place = |call: &Call| format!("{}.{}#{}", name(&call.execution), call.label, call.key.attempt);
        Some(match outgoing {
            Outgoing::Task { call, meta, chain } => {
                let place = place(&call);
                // A mesh accepts a task once, so an id of two attempts would leave the second
                // unanswered.
                let earlier = self.attempts.insert(call.task.clone(), call.key);
                assert!(
                    earlier.is_none_or(|earlier| earlier == call.key),
                    "{place} has the id of another task"
                );
                if is_for_workflow(&call, |_| false) {
                    let agent = Token::of(call.ask.target.name());
                    let subject = result_subject(self.config.shards, &key(), &call, &agent);
                    let input = (Value::clone(&call.ask.input), None);
                    let start = child_start(&call, &meta, &chain, input, subject.name("ns"));
                    let name = format!("{}-{}{}", name(&call.execution), call.label, call.key.attempt);
                    self.names.insert(start.execution.clone(), name);
                    self.tasks.insert(place.clone(), call);
                    self.children.insert(place.clone(), start);
                    return Some(format!("child {place}"));
                }
                self.tasks.insert(place.clone(), call);
                format!("task {place}")
            }
            Outgoing::Evaluation { call, .. } => {
                let place = place(&call);
                self.tasks.insert(place.clone(), call);
                format!("evaluate {place}")
            }
            Outgoing::CancelEvaluation { .. } => "drop evaluation".to_owned(),
            Outgoing::CancelTask { call } => format!("drop {}", place(&call)),
            Outgoing::WaitReport(report) => {
                let what = if report.wait.is_some() { "waits" } else { "continues" };
                let text = format!("{what} {}", name(&report.callee));
                self.report = Some(*report);
                text
            }
            Outgoing::Finish { record, outcome, end_number, usage, wait_report, .. } => {
                let id = record.meta.execution.clone();
                let mut text = format!("finish {} {}", name(&id), outcome.status.as_str());
                if !usage.is_empty() {
                    let _ = write!(text, " used {}", usage.turns);
                }
                if let Some(report) = wait_report {
                    text += " and continues";
                    self.report = Some(*report);
                }
                self.ended.insert(id, (*record, end_number));
                text
            }
            Outgoing::ChildStartRejected { meta, fault } => {
                self.rejected.push(meta.execution);
                format!("rejected {}", fault.code)
            }
            Outgoing::StartAnswer { reply, decision, .. } => match decision {
                StartDecision::Begun => format!("{reply} begun"),
                StartDecision::Known => format!("{reply} known"),
                StartDecision::Refused(reason) => {
                    format!("{reply} {}", reason.split(':').next().unwrap_or_default())
                }
            },
        })
    }

    fn takeover(&mut self, follows: &mut Vec<String>, condemned: &[&str]) {
        let opening = open(&self.config, &self.journal, condemned);
        let mut opening = opening;
        let claim = opening.claim();
        self.sequence += 1;
        self.journal.push((self.sequence, Commit::decode(&claim.body).unwrap()));
        opening.handle_claimed(self.sequence);
        follows.extend(opening.held().iter().map(|held| format!("held {}", held.execution)));
        for outgoing in opening.rejected_children() {
            follows.extend(self.sent(outgoing));
        }
        while opening.next_group().is_some() {
            for outgoing in opening.fold_group(program_by_digest) {
                follows.extend(self.sent(outgoing));
            }
        }
        (self.state, _) = opening.finish();
    }
}

/// Opens a shard in which these executions are condemned.
fn open(config: &Arc<ShardConfig>, journal: &[(u64, Commit)], condemned: &[&str]) -> ShardOpening {
    let mut reader = JournalReader::default();
    let mut bytes = 0;
    for (seq, commit) in journal {
        bytes += commit.encode().len();
        reader.read(*seq, commit.clone());
    }
    let items: Vec<Value> = condemned.iter().map(|id| json!({ "execution": id })).collect();
    let note = json!({ "process": "before", "condemned": items });
    let guard = TakeoverGuard::new(&serde_json::to_vec(&note).unwrap(), "me", false);
    let (positions, position) = (reader.positions(), journal.last().map_or(0, |(seq, _)| *seq));
    ShardOpening::new(Arc::clone(config), reader, guard, positions, position, bytes)
}
