//! Retries: what would run again, and the command that does it.

use sinew_engine::{Activation, InputRefusal, RetryRequest};
use sinew_inspection::record::Record;
use sinew_inspection::retry;
use sinew_protocol::card;
use sinew_protocol::command::{Command, RetryCommand};
use sinew_source::Schema;

use crate::execution_changes::FoundExecution;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{MeshOperator, online};

pub use sinew_inspection::retry::RetryPreview;

/// Says what a retry would keep, run again and reset. Fails as the retry would.
pub async fn preview_retry(found: &FoundExecution, wanted: &RetryRequest) -> Result<RetryPreview, Failure> {
    let preview = retry::preview(&found.record, wanted).map_err(refused)?;
    check_input(found, wanted).await?;
    Ok(preview)
}

impl MeshOperator {
    /// Retries an execution, and waits until the retry is recorded.
    pub async fn retry(&self, record: &Record, wanted: RetryRequest, reason: String) -> Result<(), Failure> {
        let command = RetryCommand {
            execution: record.execution.id().clone(),
            nodes: wanted.nodes,
            only: wanted.only,
            input: wanted.input,
            reason,
        };
        self.signal(Command::Retry(command)).await.map(drop)
    }
}

fn refused(refused: InputRefusal) -> Failure {
    let kind = match refused {
        InputRefusal::NoSuchNode(_) => FailureKind::NotFound,
        InputRefusal::ManyNodes(_) | InputRefusal::TakesNoInput(_) | InputRefusal::BadInput(_) => {
            FailureKind::Usage
        }
        _ => FailureKind::Conflict,
    };
    let failure = Failure::new(kind, refused.code(), refused.to_string());
    match refused {
        InputRefusal::NotEnded => failure.hint("`sinew execution cancel ID` ends it"),
        InputRefusal::DidNotFail(node) => {
            failure.hint(format!("`sinew execution fork ID --at {node}` runs it again in a new execution"))
        }
        InputRefusal::BadInput(_) => failure,
        _ => failure.hint("`sinew execution tree ID` shows what failed"),
    }
}

/// Holds the input for a node to what was to hold the last one, else to what its agent's card says. An agent whose card is
/// not there looks at the input when it gets it.
async fn check_input(found: &FoundExecution, retry: &RetryRequest) -> Result<(), Failure> {
    let (Some(input), [node]) = (&retry.input, retry.nodes.as_slice()) else { return Ok(()) };
    let state = found.record.execution.state();
    let of_node = |one: &&Activation| found.record.plan().node(one.node).id == *node;
    let Some(ask) = state.acts.iter().rev().filter(of_node).find_map(|one| one.last_task()) else {
        return Ok(());
    };
    let schema = match (&ask.input_schema, &found.remote) {
        (Some(schema), _) => Some(schema.clone()),
        (None, Some(remote)) => {
            let announced = online(remote.mesh()).await.get(ask.target.name());
            announced.and_then(|one| card::input_schema(&one.card).cloned())
        }
        (None, None) => None,
    };
    // A schema that cannot be used refuses nothing: its agent says so itself.
    let Some(schema) = schema.and_then(|schema| Schema::compile(&schema).ok()) else { return Ok(()) };
    let wrong: Vec<String> =
        schema.errors(input).into_iter().map(|one| format!("{} {}", one.pointer, one.message)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let text = format!("{} does not take it: {}", ask.target.name(), wrong.join("; ").trim());
    Err(refused(InputRefusal::BadInput(text)))
}
