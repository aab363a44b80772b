//! Commands to a running execution: cancel, pause, resume.

use sinew_documents::bulk::BulkVerb;
use sinew_documents::command::SteeredExecution;
use sinew_protocol::ExecutionId;
use sinew_protocol::command::{CancelCommand, Command, PauseCommand, ResumeCommand};
use sinew_protocol::query::ExecutionStatus;

use crate::failure::Failure;
use crate::mesh_operator::MeshOperator;

/// A command to a running execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Cancel it, for this reason; empty for none.
    Cancel(String),
    /// Pause it, for this reason; empty for none.
    Pause(String),
    /// Resume it.
    Resume,
}

impl Steering {
    /// Returns the verb for people: `cancel`.
    pub const fn verb(&self) -> &'static str {
        self.bulk_verb().as_str()
    }

    /// Returns the status that the command leads to: `cancelled`.
    pub fn result(&self) -> &'static str {
        match self {
            Self::Cancel(_) => "cancelled",
            Self::Pause(_) => "paused",
            Self::Resume => "resumed",
        }
    }

    /// Returns the command as that of a bulk operation.
    pub const fn bulk_verb(&self) -> BulkVerb {
        match self {
            Self::Cancel(_) => BulkVerb::Cancel,
            Self::Pause(_) => BulkVerb::Pause,
            Self::Resume => BulkVerb::Resume,
        }
    }

    /// Returns the reason; empty for none.
    pub fn reason(&self) -> &str {
        match self {
            Self::Cancel(reason) | Self::Pause(reason) => reason,
            Self::Resume => "",
        }
    }

    /// Returns whether an execution of this status accepts the command, as far as its status tells.
    /// Its owner decides.
    pub fn applies_to(&self, status: ExecutionStatus) -> bool {
        self.bulk_verb().applies_to(status)
    }
}

impl MeshOperator {
    /// Sends a command to an execution, and waits until it is recorded.
    pub async fn steer(
        &self,
        execution: ExecutionId,
        steering: &Steering,
    ) -> Result<SteeredExecution, Failure> {
        let steered = SteeredExecution { execution: execution.to_string(), status: steering.result().into() };
        let command = match steering {
            Steering::Cancel(reason) => Command::Cancel(CancelCommand { execution, reason: reason.clone() }),
            Steering::Pause(reason) => Command::Pause(PauseCommand { execution, reason: reason.clone() }),
            Steering::Resume => Command::Resume(ResumeCommand { execution }),
        };
        self.signal(command).await?;
        Ok(steered)
    }
}
