//! Commands, obeyed or refused: starts, and whatever else people and executors ask of an execution.

use serde_json::Value;
use sinew_engine::{ActivationPhase, EngineInput, ExecutionMode, PersonAnswer, RetryRequest, Time};
use sinew_protocol::command::{ApproveCommand, Command, RetryCommand};
use sinew_protocol::journal::{ExecutionMeta, Verdict};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Fault, Token};
use tracing::debug;

use super::book::{Effect, Stage};
use super::intake::{self, Begin, Signal};
use super::open::{Open, Unfit};
use super::shard::Shard;

impl Shard {
    /// Begins an execution, or says why not.
    pub(super) fn start(&mut self, stage: &mut Stage, now: Time, begin: Begin) {
        let Begin { command, id, caller, identity, program, input, traceparent } = begin;
        let execution = command.execution.clone();
        let proved = intake::proves(&self.shared, &command);
        let refuse = |fault: &Fault| Verdict {
            id: id.clone(),
            op: Operation::Start,
            caller: caller.clone(),
            accepted: false,
            reason: format!("{}: {}", fault.code, fault.message),
        };
        let compared = self.book.known(&execution).map(|known| identity.compare(&known.meta));
        let program = match compared {
            Some(Ok(())) => {
                debug!(%execution, "a start was given twice");
                return;
            }
            Some(Err(fault)) => Err(fault),
            None => program,
        };
        let meta = ExecutionMeta {
            execution: execution.clone(),
            workflow: command.workflow.clone(),
            dialect: program.as_ref().map(|program| program.adapter.name().to_owned()).unwrap_or_default(),
            plan: program.as_ref().map(|program| program.graph.digest().to_owned()).unwrap_or_default(),
            caller: caller.clone(),
            user: command.user,
            user_config: command.user_config,
            session: command.session,
            labels: command.labels,
            created: now,
            parent: command.parent.filter(|_| proved),
            traceparent,
            start_digest: Some(identity.into_digest()),
        };
        let mode = match &command.mode {
            Value::Null => Ok(ExecutionMode::default()),
            mode => serde_json::from_value(mode.clone()).map_err(|error| {
                Fault::invalid(super::BAD_COMMAND, format!("the mode cannot be read: {error}"))
            }),
        };
        // Depth and chain bound recursion, so only executors may say how deep a start is.
        let believed = meta.parent.is_some() || command.behalf.is_some();
        let (depth, chain) = if believed { (command.depth, command.chain) } else { (0, Vec::new()) };
        let ready = program.and_then(|program| match crate::call::circle(&program, &chain) {
            None => Ok((program, input?, mode?)),
            Some(fault) => Err(fault),
        });
        let (program, input, mode) = match ready {
            Ok(ready) => ready,
            Err(fault) => {
                self.book.verdict(stage, &execution, refuse(&fault));
                if meta.parent.is_some() {
                    stage.effects.push(Effect::Stillborn { meta: Box::new(meta), fault });
                }
                return;
            }
        };
        let begun =
            self.book.start(stage, now, meta, program, EngineInput::Start { input, mode, depth, chain });
        match begun {
            Ok(()) => {
                metrics::counter!("sinew_executions_started_total").increment(1);
            }
            Err(Unfit::Refused(refused)) => debug!(%execution, %refused, "a start was given twice"),
            Err(Unfit::Broke(fault)) => self.book.verdict(stage, &execution, refuse(&fault)),
        }
    }

    /// Obeys any other command, or says why not.
    pub(super) fn signal(&mut self, stage: &mut Stage, now: Time, signal: Signal) {
        let Signal { execution, id, caller, op, command, closed, refusal } = signal;
        if self.book.decided(&execution, &caller, &id).is_some() {
            return;
        }
        // A command that is read again, after the execution it retried has closed once more.
        if let Some(Ok(open)) = &closed
            && open.stored.verdicts.iter().any(|verdict| verdict.id == id && verdict.caller == caller)
        {
            return;
        }
        let done = match refusal {
            Some(fault) => Err(format!("{}: {}", fault.code, fault.message)),
            None => self.obey(stage, now, &execution, &caller, command, closed),
        };
        let (accepted, reason) = match done {
            Ok(()) => (true, String::new()),
            Err(reason) => (false, reason),
        };
        debug!(%execution, op = op.as_str(), %caller, accepted, "command");
        self.book.verdict(stage, &execution, Verdict { id, op, caller, accepted, reason });
    }

    fn obey(
        &mut self,
        stage: &mut Stage,
        now: Time,
        execution: &ExecutionId,
        caller: &Token,
        command: Command,
        closed: Option<Result<Open, Fault>>,
    ) -> Result<(), String> {
        if self.book.wake(execution).is_none() {
            let aside = self.book.set_aside_one(execution).map(|(_, fault)| fault.message.clone());
            match (closed, aside) {
                (Some(Ok(open)), None) => self.book.reopen(stage, open),
                (Some(Ok(open)), Some(_)) => {
                    let is_paused = open.state().paused.is_some();
                    // Its outstanding actions are repeated, as after a takeover.
                    let outstanding = open.outstanding();
                    self.book.reopen(stage, open);
                    stage.effects.extend(
                        outstanding
                            .into_iter()
                            .map(|action| Effect::Act { execution: execution.clone(), action }),
                    );
                    if matches!(command, Command::Resume(_)) && !is_paused {
                        return Ok(());
                    }
                }
                (Some(Err(fault)), _) => return Err(fault.message),
                (None, Some(reason)) => {
                    return Err(format!("the execution was set aside: {reason}; resume or cancel it"));
                }
                (None, None) => {
                    return Err("the execution is not open: it has ended, or never began".to_owned());
                }
            }
        }
        let Some(open) = self.book.get(execution) else { return Err("the execution is not open".to_owned()) };
        let who = |reason: String| match caller.name().unwrap_or_else(|| caller.to_string()) {
            name if reason.is_empty() => format!("by {name}"),
            name => format!("by {name}: {reason}"),
        };
        let input = match command {
            Command::Cancel(cancel) => EngineInput::Cancel { reason: who(cancel.reason) },
            Command::Pause(pause) => EngineInput::Pause { reason: who(pause.reason) },
            Command::Resume(_) => EngineInput::Resume,
            Command::Retry(RetryCommand { nodes, only, input, reason, .. }) => {
                EngineInput::Retry { retry: RetryRequest { nodes, only, input }, reason: who(reason) }
            }
            Command::Approve(approve) => decision(open, caller, approve)?,
            Command::Start(_) => return Err("a start is no signal".to_owned()),
        };
        self.book.input(stage, now, execution, input).map_err(|unfit| match unfit {
            Unfit::Refused(refused) => refused.to_string(),
            Unfit::Broke(fault) => fault.message,
        })
    }
}

/// A decision as the engine takes it, if this person may decide and something waits for it.
fn decision(open: &Open, caller: &Token, approve: ApproveCommand) -> Result<EngineInput, String> {
    let state = open.state();
    let ctx = open.ctx();
    let meant = |act: u32| {
        let named = approve
            .node
            .as_deref()
            .is_none_or(|node| ctx.node_of(act).id == node || crate::events::label(&ctx, act) == node);
        named && approve.activation.is_none_or(|wanted| wanted == act)
    };
    let all: Vec<u32> = state.waiting().collect();
    let act = match all.iter().copied().filter(|act| meant(*act)).collect::<Vec<_>>().as_slice() {
        [act] => *act,
        [] if all.is_empty() => return Err("nothing in the execution waits for a person".to_owned()),
        [] => {
            return Err("no such node waits for a person; it was decided already, or never asked".to_owned());
        }
        _ => return Err("several nodes wait for a person: name one".to_owned()),
    };
    debug_assert_eq!(state.act(act).phase, ActivationPhase::Waiting);
    let name = caller.name().unwrap_or_else(|| caller.to_string());
    let allowed = state.act(act).wait.as_ref().map(|wait| wait.allowed.as_slice()).unwrap_or_default();
    if !allowed.is_empty() && !allowed.contains(&name) {
        return Err(format!("{name} may not decide this: it is for {}", allowed.join(", ")));
    }
    let data = match approve.data {
        Value::Null => serde_json::json!(if approve.reject { "reject" } else { "approve" }),
        data => data,
    };
    let answer = PersonAnswer { data, timed_out: false, by: Some(name), comment: approve.comment };
    Ok(EngineInput::Answer { act, answer })
}
