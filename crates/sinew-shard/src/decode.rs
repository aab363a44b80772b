//! Decodes a shard's messages: checks subjects, proofs and bodies before any lookup.

use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Fault, Subject, TaskId, Token, code};

use crate::bug::seeded_bug;
use crate::intake::{
    CommandInput, InboxMessage, InputStream, IntakeStep, PendingInput, ShardInput, StartInput,
};
use crate::start_identity::StartIdentity;
use crate::state::{ShardConfig, ShardState};
use crate::takeover_note::{MAX_ITEM_DEATHS, TakeoverNote, WorkItem};

impl ShardState {
    /// Decodes a message of the shard's streams, or rejects it if it crashed the shard's owners.
    pub fn decode_with_care(&self, note: &TakeoverNote, message: &InboxMessage<'_>) -> PendingInput {
        let is_refused = self.refuses(note, &message.work_item());
        if is_refused { self.refuse_condemned(message) } else { self.decode(message) }
    }

    /// Returns true if messages of a condemned item are rejected. An open condemned execution was
    /// opened afterwards, by another message, and needs its results. If it crashes an owner again,
    /// the next owner suspects it again.
    pub(crate) fn refuses(&self, note: &TakeoverNote, item: &WorkItem) -> bool {
        let is_open = matches!(item, WorkItem::Execution(execution) if self.table.known(execution).is_some());
        note.is_condemned(item) && !is_open
    }

    /// Decodes a message of the shard's streams.
    pub(crate) fn decode(&self, message: &InboxMessage<'_>) -> PendingInput {
        let config = &*self.config;
        match (message.stream, message.subject) {
            (InputStream::Commands, Some(Subject::Command { shard, operation, caller, id }))
                if *shard == config.shard =>
            {
                match Command::read(*operation, id, message.body) {
                    Ok(Command::Start(start)) if config.holds(&start.execution) => {
                        self.decode_start(start_input(config, *start, id, caller, message.traceparent))
                    }
                    Ok(Command::Wait(report)) if config.holds(&report.execution) => {
                        if !report.holds(&config.key) {
                            return PendingInput::quarantined(
                                code::RESULT_WITHOUT_PROOF.as_str(),
                                "the report was not created by an executor",
                            );
                        }
                        PendingInput::ready(ShardInput::CalleeWait(report))
                    }
                    Ok(command) if config.holds(command.execution()) => {
                        self.decode_command(command, *operation, id, caller)
                    }
                    Ok(_) => PendingInput::quarantined(
                        code::MESSAGE_MEANINGLESS.as_str(),
                        "the execution belongs to another shard",
                    ),
                    Err(bad) => {
                        PendingInput::quarantined(code::MESSAGE_MEANINGLESS.as_str(), bad.to_string())
                    }
                }
            }
            (InputStream::Results, Some(Subject::Result { shard, agent, execution, task, token }))
                if *shard == config.shard =>
            {
                let is_proved = token.proves(&config.key, task) || seeded_bug!(TokenNotChecked);
                if !is_proved || !config.holds(execution) {
                    return PendingInput::quarantined(
                        code::RESULT_WITHOUT_PROOF.as_str(),
                        "its token does not prove the task",
                    );
                }
                self.decode_result(message.body, agent, execution, task)
            }
            _ => PendingInput::quarantined(
                code::MESSAGE_MEANINGLESS.as_str(),
                "its subject does not belong to this shard",
            ),
        }
    }

    /// Decodes a start by request; `reply` is the subject for the answer. Returns `None` if it is
    /// unusable, not for this shard, or has a stored input. The caller then stores it as a command,
    /// which is quarantined or reaches its owner.
    pub fn decode_start_request(
        &self,
        caller: &Token,
        id: &Token,
        body: &[u8],
        traceparent: Option<&str>,
        reply: String,
    ) -> Option<PendingInput> {
        let Ok(Command::Start(start)) = Command::read(Operation::Start, id, body) else { return None };
        // A stored input may be large: commands wait for it in the stream, but requests would wait
        // in memory.
        if !self.config.holds(&start.execution) || start.input_artifact.is_some() {
            return None;
        }
        let mut start = start_input(&self.config, *start, id, caller, traceparent);
        start.reply = Some(reply);
        Some(self.decode_start(start))
    }

    /// Rejects a message that crashed the shard's owners, without a lookup.
    pub(crate) fn refuse_condemned(&self, message: &InboxMessage<'_>) -> PendingInput {
        let config = &*self.config;
        let text = format!("{MAX_ITEM_DEATHS} executors crashed while they processed the message");
        let fault = Fault::invalid(code::MESSAGE_QUARANTINED.as_str(), text.clone());
        let mut pending = PendingInput::quarantined(code::MESSAGE_QUARANTINED.as_str(), text);
        let Some(Subject::Command { operation, caller, id, .. }) = message.subject else { return pending };
        let read = Command::read(*operation, id, message.body).ok();
        let Some(command) = read.filter(|command| config.holds(command.execution())) else { return pending };
        let input = match command {
            Command::Start(start) => {
                let mut start = start_input(config, *start, id, caller, None);
                start.program = Err(fault);
                ShardInput::Start(Box::new(start))
            }
            Command::Wait(_) => return pending,
            command => {
                let mut input = command_input(command, *operation, id, caller);
                input.refusal = Some(fault);
                ShardInput::Command(Box::new(input))
            }
        };
        pending.step = IntakeStep::Ready(input);
        pending
    }

    fn decode_start(&self, mut start: StartInput) -> PendingInput {
        if let Err(fault) = start.identity.check_id(&start.command, &self.config.namespace) {
            start.program = Err(fault);
            return PendingInput::ready(ShardInput::Start(Box::new(start)));
        }
        // An open execution has no record, and neither has an id that was never used.
        let is_open = self.table.known(&start.command.execution).is_some();
        let has_record = !is_open && !self.closed_ids.is_new(&start.identity, &start.command);
        let start = Box::new(start);
        let step = if has_record { IntakeStep::StartRecord(start) } else { IntakeStep::StartProgram(start) };
        PendingInput { quarantine: None, step }
    }

    fn decode_command(&self, command: Command, op: Operation, id: &Token, caller: &Token) -> PendingInput {
        let input = Box::new(command_input(command, op, id, caller));
        let step = match (&input.command, self.table.held_one(&input.execution)) {
            (Command::Resume(_) | Command::Cancel(_), Some((stored, _))) => {
                let stored = Box::new(stored.clone());
                IntakeStep::CommandPlan(input, stored)
            }
            (Command::Retry(_), _) if self.table.known(&input.execution).is_none() => {
                IntakeStep::CommandRecord(input)
            }
            _ => IntakeStep::Ready(ShardInput::Command(input)),
        };
        PendingInput { quarantine: None, step }
    }

    fn decode_result(
        &self,
        body: &[u8],
        agent: &Token,
        execution: &ExecutionId,
        task: &TaskId,
    ) -> PendingInput {
        if let Some((_, fault)) = self.table.held_one(execution) {
            let text = format!(
                "its execution is held until an operator resumes it: {}: {}",
                fault.code, fault.message
            );
            return PendingInput::quarantined(code::EXECUTION_QUARANTINED.as_str(), text);
        }
        let pending = PendingInput::of_stored_result(body, execution, task, agent);
        if self.table.known(execution).is_some() { pending } else { pending.of_closed() }
    }
}

fn start_input(
    config: &ShardConfig,
    mut command: StartCommand,
    id: &Token,
    caller: &Token,
    traceparent: Option<&str>,
) -> StartInput {
    // Accept `behalf` only if an executor signed it.
    command.behalf.take_if(|behalf| !behalf.holds(&config.key, &command.execution));
    let caller = command.behalf.as_ref().map_or(caller, |behalf| &behalf.caller).clone();
    let is_parent_proved = proves_parent(config, &command);
    let identity = StartIdentity::of(&command, &caller, is_parent_proved);
    StartInput {
        id: id.clone(),
        caller,
        identity,
        program: Err(Fault::error(code::PLAN_UNUSABLE.as_str(), "the program was not looked up")),
        input: Ok(std::mem::take(&mut command.input)),
        traceparent: traceparent.map(str::to_owned),
        is_parent_proved,
        reply: None,
        is_closed: false,
        paused: None,
        command,
    }
}

fn command_input(command: Command, op: Operation, id: &Token, caller: &Token) -> CommandInput {
    let execution = command.execution().clone();
    let (id, caller) = (id.clone(), caller.clone());
    CommandInput { execution, id, caller, op, command, restored: None, refusal: None, results: Vec::new() }
}

/// Returns true if an executor created the reference to the parent, or if there is none: only
/// executors can create the token in the result subject.
fn proves_parent(config: &ShardConfig, command: &StartCommand) -> bool {
    let Some(parent) = &command.parent else { return true };
    match Subject::parse(&config.namespace, &parent.result_subject) {
        Some(Subject::Result { shard, execution, task, token, .. }) => {
            execution == parent.execution
                && task == parent.task
                && execution.shard(config.shards) == shard
                && token.proves(&config.key, &task)
        }
        _ => false,
    }
}
