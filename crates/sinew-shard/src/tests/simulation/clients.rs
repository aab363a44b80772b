//! Clients of the simulation: starts, some with existing ids, and commands of all kinds.

use serde_json::json;
use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Subject, Token};

use super::hostile::HostileMesh;
use super::shard_of;
use crate::tests::kit::execution;

/// Workflows that clients start.
const WORKFLOWS: [&str; 9] = ["one", "line", "wide", "nap", "ask", "parent", "boss", "script", "loop"];

/// All clients.
#[derive(Default)]
pub(super) struct SimulatedClients {
    pub(super) started: Vec<ExecutionId>,
    commands: u64,
}

impl SimulatedClients {
    /// Starts an execution. Some ids already exist, from the same caller with the same or another
    /// body, or from another caller.
    pub(super) fn start(&mut self, mesh: &mut HostileMesh) {
        let workflow = mesh.dice.pick(&WORKFLOWS);
        let caller = mesh.dice.pick(&["ada", "ada", "eve"]);
        let id = match self.started.last() {
            Some(known) if mesh.dice.chance(25) => known.clone(),
            _ => execution(&format!("x{}", self.started.len())),
        };
        let mut start = StartCommand::new(id.clone(), workflow, json!({ "n": 1 }));
        if mesh.dice.chance(20) {
            // A chain that only an executor may send.
            start.chain = vec!["one".to_owned(), "line".to_owned(), "nap".to_owned()];
            start.depth = 3;
        }
        self.started.push(id);
        self.put(mesh, caller, &Command::Start(Box::new(start)));
    }

    /// Sends any command to any of the executions.
    pub(super) fn command(&mut self, mesh: &mut HostileMesh) {
        if self.started.is_empty() {
            return;
        }
        let nth = mesh.dice.roll(self.started.len() as u64) as usize;
        let operation = match mesh.dice.roll(10) {
            0 => Operation::Cancel,
            1 | 2 => Operation::Pause,
            3 | 4 => Operation::Resume,
            5..8 => Operation::Approve,
            _ => Operation::Retry,
        };
        self.give(mesh, "ada", operation, &self.started[nth].clone());
    }

    /// Sends a command without settings.
    pub(super) fn give(
        &mut self,
        mesh: &mut HostileMesh,
        caller: &str,
        operation: Operation,
        execution: &ExecutionId,
    ) {
        let body = json!({ "execution": execution.as_str() }).to_string();
        let command = Command::read(operation, &Token::of("any"), body.as_bytes()).unwrap();
        self.put(mesh, caller, &command);
    }

    fn put(&mut self, mesh: &mut HostileMesh, caller: &str, command: &Command) {
        self.commands += 1;
        let execution = command.execution();
        let id = match command {
            Command::Start(_) => Token::parse(execution.as_str()).unwrap(),
            _ => Token::of(&format!("c{}", self.commands)),
        };
        let (shard, operation, caller) = (shard_of(execution), command.operation(), Token::of(caller));
        let subject = Subject::Command { shard, operation, caller, id };
        mesh.bus.put_once(subject, command.to_json().into());
    }
}
