//! `sinew agent log`: the conversations of model agents in an execution, record by record.

use clap::Args;
use serde_json::{Value, json};
use sinew_documents::words;
use sinew_mesh::steps::StepLogId;
use sinew_operations::conversation_view::{conversation_lines, conversation_rows};
use sinew_operations::execution_messages::given_activations;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::{Token, code};

use crate::cmd::execution::Which;
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew agent log`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show the log of each conversation of a model agent in an execution: starts, model calls, \
                  turns, tool calls, decisions, the end. After a crash, a conversation continues after its \
                  last record.\n\n\
                  Without --content, texts of models and tools are not shown.",
    after_help = "Examples:\n  sinew agent log @latest\n  sinew agent log @latest answer --content"
)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    which: Which,
    /// Only conversations of this node
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Show texts of models, tools and people
    #[arg(long)]
    content: bool,
}

/// Shows the logs of an execution.
pub(super) async fn log(args: &LogArgs, output: &Output) -> Result<Exit, Failure> {
    let (remote, execution) = args.which.find().await?;
    let (record, mesh) = (remote.record(&execution).await?, remote.mesh());
    let mut documents: Vec<Value> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for given in given_activations(&record) {
        if args.node.as_ref().is_some_and(|node| *node != given.node) {
            continue;
        }
        let id = StepLogId {
            agent: Token::of(&given.agent),
            execution: execution.clone(),
            activation: given.activation.clone(),
        };
        // Steps of other agents are not records of a conversation.
        let records: Vec<sinew_agents::StepRecord> = mesh
            .tasks()
            .steps()
            .read(&id, 0)
            .await?
            .iter()
            .map_while(|record| serde_json::from_slice(record).ok())
            .collect();
        if records.is_empty() {
            continue;
        }
        let (node, agent) = (words::name(&given.node), words::name(&given.agent));
        texts.push(format!("{node}  {agent}\n{}", conversation_lines(&records, args.content)));
        documents.push(json!({
            "node": given.node,
            "agent": given.agent,
            "activation": given.activation.as_str(),
            "records": conversation_rows(&records, args.content),
        }));
    }
    if documents.is_empty() {
        let text = "the execution has no logged conversation of a model agent";
        return Err(Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text));
    }
    output.value(&documents, |_| texts.join("\n\n"));
    Ok(Exit::Ok)
}
