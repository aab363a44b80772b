//! Accepts or rejects starts and other commands, and accepts or ignores results.

use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{
    ActivationId, ActivationPhase, EngineInput, ExecutionMode, PersonAnswer, RetryRequest, TaskReply, Time,
};
use sinew_protocol::access::group_of;
use sinew_protocol::command::{ApproveCommand, Command, RetryCommand};
use sinew_protocol::decision::WrittenDecision;
use sinew_protocol::journal::{ExecutionMeta, Verdict};
use sinew_protocol::person_wait::WaitReport;
use sinew_protocol::start::new_key_time;
use sinew_protocol::subject::Operation;
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{ExecutionId, Fault, TaskId, Token, code};

use crate::active::{ActiveExecution, InputError};
use crate::bug::seeded_bug;
use crate::closed_ids::check_key_time;
use crate::commit_builder::Effect;
use crate::intake::{CommandInput, ResultInput, StartInput};
use crate::notice::ShardNotice;
use crate::outgoing::StartDecision;
use crate::state::{OutputCheck, ShardState};
use crate::timer_check::DueTask;
use sinew_execution::call_cycle;

/// The body of a command names something unusable.
const COMMAND_UNUSABLE: &str = code::COMMAND_UNUSABLE.as_str();
/// An agent aborted at its deadline.
const AGENT_TOO_LATE: &str = code::AGENT_TOO_LATE.as_str();
/// Milliseconds by which an agent's clock may be ahead.
const MAX_CLOCK_SKEW: Time = 2_000;

/// Data for the answer to a start.
struct StartAnswer {
    id: Token,
    caller: Token,
    execution: ExecutionId,
    /// Subject for the answer to a request; `None` for a start from the command stream.
    reply: Option<String>,
}

impl ShardState {
    /// Starts an execution, or rejects the start.
    pub(crate) fn handle_start(&mut self, now: Time, start: StartInput) {
        let execution = start.command.execution.clone();
        let answer =
            StartAnswer { id: start.id, caller: start.caller.clone(), execution, reply: start.reply };
        if start.is_closed {
            return self.repeat_start(answer);
        }
        let is_child = start.is_parent_proved && start.command.parent.is_some();
        // The parent is being notified, so a copy of the start from another executor must not start
        // the child.
        if let Some(fault) = self.table.rejection(&answer.execution).filter(|_| is_child) {
            return self.refuse_start(answer, &fault);
        }
        let compared = self.table.known(&answer.execution).map(|known| start.identity.compare(&known.meta));
        let program = match compared {
            Some(Ok(())) if !seeded_bug!(DuplicateStartBegins) => return self.repeat_start(answer),
            Some(Err(fault)) => Err(fault),
            Some(Ok(())) | None => check_key_time(&start.identity, &start.command, now).and(start.program),
        };
        let command = start.command;
        // Depth and chain limit recursion, and agents share the memory of a conversation, so they
        // are accepted only from executors.
        let is_believed = start.is_parent_proved && command.parent.is_some()
            || command.behalf.is_some()
            || seeded_bug!(ChainBelieved);
        let meta = ExecutionMeta {
            execution: command.execution,
            workflow: command.workflow,
            dialect: program.as_ref().map(|program| program.adapter.name().to_owned()).unwrap_or_default(),
            plan: program.as_ref().map(|program| program.graph.digest().to_owned()).unwrap_or_default(),
            caller: start.caller,
            user: command.user,
            user_config: command.user_config,
            session: command.session,
            labels: command.labels,
            created: now,
            parent: command.parent.filter(|_| start.is_parent_proved),
            traceparent: start.traceparent,
            start_digest: Some(start.identity.into_digest()),
            // A digest of the token proves the task, and only executors check it.
            calling: command.calling.filter(|_| command.behalf.is_some()),
            // A generated key identifies nothing that its caller knows.
            idempotency_key: command.idempotency_key.filter(|key| new_key_time(key).is_none()),
            conversation: command.conversation.filter(|_| is_believed),
        };
        let (depth, chain) = if is_believed { (command.depth, command.chain) } else { (0, Vec::new()) };
        let ready = program.and_then(|program| match call_cycle(&program, &chain) {
            None => Ok((program, start.input?, read_mode(&command.mode)?)),
            Some(fault) => Err(fault),
        });
        let (program, input, mode) = match ready {
            Ok(ready) => ready,
            Err(fault) => {
                self.refuse_start(answer, &fault);
                if meta.parent.is_some() {
                    self.table.reject(&mut self.builder, meta, fault);
                }
                return;
            }
        };
        let begin = EngineInput::Start { input, mode, depth, chain, paused: start.paused };
        match self.table.start(&mut self.builder, now, meta, program, begin) {
            Ok(()) => {
                let StartAnswer { execution, reply, .. } = answer;
                self.answer_start(&execution, reply, StartDecision::Begun);
                self.notices.push(ShardNotice::Started(execution));
            }
            Err(InputError::Refused(_)) => self.repeat_start(answer),
            Err(InputError::Broke(fault)) => self.refuse_start(answer, &fault),
        }
    }

    /// Answers a rejected start, and records the verdict.
    fn refuse_start(&mut self, answer: StartAnswer, fault: &Fault) {
        let StartAnswer { id, caller, execution, reply } = answer;
        let reason = format!("{}: {}", fault.code, fault.message);
        self.answer_start(&execution, reply, StartDecision::Refused(reason.clone()));
        let verdict = Verdict { id, op: Operation::Start, caller, accepted: false, reason };
        self.table.verdict(&mut self.builder, &execution, verdict);
    }

    fn repeat_start(&mut self, answer: StartAnswer) {
        let StartAnswer { execution, reply, .. } = answer;
        self.answer_start(&execution, reply, StartDecision::Known);
        self.notices.push(ShardNotice::StartRepeated(execution));
    }

    /// Answers a start by request after all decisions so far are stored.
    fn answer_start(&mut self, execution: &ExecutionId, reply: Option<String>, decision: StartDecision) {
        let Some(reply) = reply else { return };
        self.builder.effects.push(Effect::StartDecided { execution: execution.clone(), reply, decision });
    }

    /// Executes any other command, or rejects it.
    pub(crate) fn handle_command(&mut self, now: Time, input: CommandInput) {
        let CommandInput { execution, id, caller, op, command, restored, refusal, .. } = input;
        let is_decided = self.table.decided(&execution, &caller, &id).is_some();
        if is_decided && !seeded_bug!(CommandObeyedTwice) {
            return;
        }
        // The command is repeated after the execution that it retried closed again.
        if let Some(Ok(active)) = &restored
            && active.stored.verdicts.iter().any(|verdict| verdict.id == id && verdict.caller == caller)
            && !seeded_bug!(CommandObeyedTwice)
        {
            return;
        }
        let done = match refusal {
            Some(fault) => Err(format!("{}: {}", fault.code, fault.message)),
            None => self.obey(now, &execution, &caller, command, restored),
        };
        let (accepted, reason) = match done {
            Ok(()) => (true, String::new()),
            Err(reason) => (false, reason),
        };
        self.notices.push(ShardNotice::CommandDecided {
            execution: execution.clone(),
            operation: op,
            caller: caller.clone(),
            accepted,
        });
        self.table.verdict(&mut self.builder, &execution, Verdict { id, op, caller, accepted, reason });
    }

    fn obey(
        &mut self,
        now: Time,
        execution: &ExecutionId,
        caller: &Token,
        command: Command,
        restored: Option<Result<ActiveExecution, Fault>>,
    ) -> Result<(), String> {
        let mut was_closed = false;
        let earlier = self.builder.verdicts_of(execution);
        if self.table.load(execution).is_none() {
            was_closed = self.table.held_one(execution).is_none();
            if self.restore(execution, restored, matches!(command, Command::Resume(_)))? {
                return Ok(());
            }
        }
        let Some(active) = self.table.get(execution) else {
            return Err("the execution is not open".to_owned());
        };
        let with_caller = |reason: String| match caller.name().unwrap_or_else(|| caller.to_string()) {
            name if reason.is_empty() => format!("by {name}"),
            name => format!("by {name}: {reason}"),
        };
        let input = match command {
            Command::Cancel(cancel) => EngineInput::Cancel { reason: with_caller(cancel.reason) },
            Command::Pause(pause) => EngineInput::Pause { reason: with_caller(pause.reason) },
            Command::Resume(_) => EngineInput::Resume,
            Command::Retry(RetryCommand { nodes, only, input, reason, .. }) => {
                EngineInput::Retry { retry: RetryRequest { nodes, only, input }, reason: with_caller(reason) }
            }
            Command::Approve(approve) => person_answer(active, caller, approve)?,
            Command::Start(_) | Command::Wait(_) => return Err("the command is not a signal".to_owned()),
        };
        let taken = self.table.input(&mut self.builder, now, execution, input);
        if taken.is_err() && was_closed {
            // After a rejected retry, the execution stays closed: its end is archived, and would
            // not be archived again.
            self.table.forget_reopened(&mut self.builder, execution, earlier);
        }
        taken.map_err(|error| match error {
            InputError::Refused(refused) => refused.to_string(),
            InputError::Broke(fault) => fault.message,
        })
    }

    /// Restores an execution that is closed or held. Returns true if that completes the command: a
    /// held execution that is not paused continues.
    fn restore(
        &mut self,
        execution: &ExecutionId,
        restored: Option<Result<ActiveExecution, Fault>>,
        is_resume: bool,
    ) -> Result<bool, String> {
        let held = self.table.held_one(execution).map(|(_, fault)| fault.message.clone());
        match (restored, held) {
            (Some(Ok(active)), None) => {
                self.table.reopen(&mut self.builder, active);
                Ok(false)
            }
            (Some(Ok(active)), Some(_)) => {
                let is_paused = active.state().paused.is_some();
                // Outstanding actions are repeated, as after a takeover.
                let outstanding = active.outstanding().into_iter();
                let repeated = outstanding
                    .map(|action| Effect::Act { execution: execution.clone(), action })
                    .collect::<Vec<_>>();
                self.table.reopen(&mut self.builder, active);
                self.builder.effects.extend(repeated);
                Ok(is_resume && !is_paused)
            }
            (Some(Err(fault)), _) => Err(fault.message),
            (None, Some(reason)) => Err(format!("the execution is held: {reason}; resume or cancel it")),
            (None, None) => Err("the execution is not open: it has ended or never started".to_owned()),
        }
    }

    /// Records that no process has accepted a task before its deadline.
    pub fn handle_not_taken(&mut self, now: Time, task: &DueTask, is_online: bool) {
        self.now = self.now.max(now);
        let input = EngineInput::NotTaken { act: task.act, attempt: task.attempt, is_online };
        // Only a timer fires before its tick; if this fails, the tick handles it.
        let _ = self.table.input(&mut self.builder, now, &task.execution, input);
    }

    /// Counts the usage of a task of a closed execution: the record is archived again, with the
    /// usage.
    fn handle_late_usage(&mut self, now: Time, closed: ActiveExecution, task: &TaskId, usage: Value) {
        let execution = closed.stored.meta.execution.clone();
        let found = closed.find_task(task);
        let found = found.map(|(act, attempt)| (act, counted_attempt(&closed, act, attempt)));
        let found = found.filter(|(act, attempt)| !closed.state().act(*act).has_usage_of(*attempt));
        let Some((act, attempt)) = found else {
            return self.notices.push(ShardNotice::ResultLate { execution, task: task.clone() });
        };
        self.table.reopen(&mut self.builder, closed);
        // Only usage is counted: an input on which the code panics leaves the record unchanged.
        let _ =
            self.table.input(&mut self.builder, now, &execution, EngineInput::Usage { act, attempt, usage });
    }

    /// Handles the report of a callee. A report for a completed task is ignored.
    pub(crate) fn handle_callee_wait(&mut self, now: Time, report: WaitReport) {
        let WaitReport { execution, task, callee, number, wait, .. } = report;
        let Some((act, attempt)) = self.table.load(&execution).and_then(|active| active.task(&task)) else {
            return;
        };
        let (callee, wait) = (callee.to_string(), wait.map(Arc::new));
        let input = EngineInput::CalleeWait { act, attempt, callee, number, wait };
        // The engine decides this without dialect code, and rejects nothing.
        let _ = self.table.input(&mut self.builder, now, &execution, input);
    }

    /// Handles the result of a task, unless the task has completed or another agent was called.
    pub(crate) fn handle_result(&mut self, now: Time, input: ResultInput, schemas: &dyn OutputCheck) {
        let ResultInput {
            execution,
            task,
            agent,
            mut result,
            mut usage,
            worked_ms,
            logs,
            is_checked,
            closed,
        } = input;
        let used = result.as_ref().map_or(&usage, |reply| &reply.usage);
        let has_usage = TaskUsage::of(used).is_some() && !seeded_bug!(LateUsageDropped);
        // A retry in the same turn may have reopened the execution.
        if let Some(closed) = closed
            && self.table.known(&execution).is_none()
        {
            return self.handle_late_usage(now, *closed, &task, used.clone());
        }
        let found = self.table.load(&execution).and_then(|active| {
            let found = if has_usage { active.find_task(&task) } else { active.task(&task) };
            Some((found?, active))
        });
        let Some(((act, attempt), active)) = found else {
            self.notices.push(ShardNotice::ResultLate { execution, task });
            return;
        };
        if let Some(ask) = active.ask(act, attempt) {
            if !agent.stands_for(ask.target.name()) && !seeded_bug!(AgentNotChecked) {
                self.notices.push(ShardNotice::ResultForeign { execution, task, agent });
                return;
            }
            if !is_checked
                && let Ok(reply) = &result
                && let Err(fault) = schemas.check(ask, &reply.output)
            {
                usage = reply.usage.clone();
                result = Err(fault);
            }
        }
        let attempt = if seeded_bug!(LateResultCounts) { active.state().act(act).attempt } else { attempt };
        // Agents that know their deadline abort at it, by their own clock. The fault of the
        // deadline has the same text whichever happens first.
        let gave_up = matches!(&result, Err(fault) if fault.code == AGENT_TOO_LATE);
        let until = || sinew_engine::waiting_of(active.state(), act).and_then(|waiting| waiting.until);
        if gave_up && until().is_some_and(|at| at.saturating_sub(now) < MAX_CLOCK_SKEW) {
            if has_usage {
                let input = EngineInput::Usage { act, attempt, usage };
                let _ = self.table.input(&mut self.builder, now, &execution, input);
            }
            return;
        }
        let is_late = active.state().act(act).running != Some(attempt);
        if is_late && seeded_bug!(LateUsageDropped) {
            return;
        }
        let attempt = if is_late { counted_attempt(active, act, attempt) } else { attempt };
        if result.is_ok() && is_late {
            self.notices.push(ShardNotice::ResultLate { execution: execution.clone(), task: task.clone() });
        }
        for line in logs {
            let input = EngineInput::Progress { act, attempt, value: line.to_progress() };
            // Only the end of the attempt affects the execution; a log message that cannot be
            // stored is dropped.
            let _ = self.table.input(&mut self.builder, now, &execution, input);
        }
        let input = match result {
            Err(fault) => EngineInput::Failed { act, attempt, fault, usage, worked_ms },
            Ok(reply) => EngineInput::Done { act, attempt, result: Ok(TaskReply { worked_ms, ..reply }) },
        };
        if let Err(InputError::Broke(fault)) = self.table.input(&mut self.builder, now, &execution, input) {
            // The same result would cause another panic, so the attempt ends with a failure
            // instead.
            let input = EngineInput::Done { act, attempt, result: Err(fault) };
            if let Err(InputError::Broke(_)) = self.table.input(&mut self.builder, now, &execution, input) {
                self.notices.push(ShardNotice::ResultUnusable { execution, task });
            }
        }
    }
}

/// Returns the attempt for which a late result's usage is counted: its own.
fn counted_attempt(active: &ActiveExecution, act: ActivationId, attempt: u32) -> u32 {
    let one = active.state().act(act);
    let uncounted = (1..=one.attempt).find(|nth| !one.has_usage_of(*nth));
    uncounted.filter(|_| seeded_bug!(UsageCountedAgain)).unwrap_or(attempt)
}

/// Parses the mode that a start requests.
fn read_mode(mode: &Value) -> Result<ExecutionMode, Fault> {
    match mode {
        Value::Null => Ok(ExecutionMode::default()),
        mode => serde_json::from_value(mode.clone())
            .map_err(|error| Fault::invalid(COMMAND_UNUSABLE, format!("cannot read the mode: {error}"))),
    }
}

/// Returns the name of a caller, or the token of a name that is too long to be in it.
fn named(caller: &Token) -> String {
    caller.name().unwrap_or_else(|| caller.to_string())
}

/// Converts a decision for the engine, if this person may decide and a node waits for it.
fn person_answer(
    active: &ActiveExecution,
    caller: &Token,
    approve: ApproveCommand,
) -> Result<EngineInput, String> {
    let state = active.state();
    let ctx = active.ctx();
    let is_meant = |act: u32| {
        let named = approve
            .node
            .as_deref()
            .is_none_or(|node| ctx.node_of(act).id == node || sinew_execution::label(&ctx, act) == node);
        named && approve.activation.is_none_or(|wanted| wanted == act)
    };
    let all: Vec<u32> = state.waiting().collect();
    let act = match all.iter().copied().filter(|act| is_meant(*act)).collect::<Vec<_>>().as_slice() {
        [act] => *act,
        [] if all.is_empty() => return Err("no node of the execution waits for a person".to_owned()),
        [] => {
            return Err("this node does not wait for a person; it may already be decided".to_owned());
        }
        _ => return Err("several nodes wait for a person: specify one".to_owned()),
    };
    debug_assert_eq!(state.act(act).phase, ActivationPhase::Waiting);
    let caller_name = named(caller);
    let allowed = state.act(act).wait.as_ref().map(|wait| wait.allowed.as_slice()).unwrap_or_default();
    let name = match (&approve.member, group_of(&caller_name)) {
        (None, None) => caller_name.clone(),
        (Some(member), Some(_)) => named(member),
        _ => return Err("only a group decides through a member, and only through one".to_owned()),
    };
    if !allowed.is_empty() && !allowed.contains(&caller_name) {
        let mut reason = format!("{name} is not permitted to decide this: it is for {}", allowed.join(", "));
        if allowed.iter().any(|one| group_of(one).is_some()) {
            reason += "; only a gateway proves who is in a group, by the caller's key or sign-in";
        }
        return Err(reason);
    }
    let ApproveCommand { data, comment, reject, .. } = approve;
    let decision = WrittenDecision { approved: !reject, comment, data };
    let answer = PersonAnswer { by: Some(name), ..decision.into() };
    Ok(EngineInput::Answer { act, answer })
}
