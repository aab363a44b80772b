//! `sinew chat`: a conversation with an agent in a terminal, turn by turn.

mod mesh_questions;
mod partner;
mod terminal;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use sinew_agents::CancellationToken;
use sinew_documents::words;
use sinew_operations::agent_calls::fault_failure;
use sinew_operations::failure::Failure;
use sinew_protocol::usage::{ModelTotals, TaskUsage};

use crate::agent_trust::TrustArgs;
use crate::answer_stream::AnswerStream;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

use partner::{ChatPartner, ChatTurn};
use terminal::{AskedPeople, InputLines};

const HELP: &str = "/cost   tokens, turns and price of this chat
/tools  tools of the agent
/log    records of the last conversation
/exit   exit (also: end of input, Ctrl-C)";

/// Arguments of `sinew chat`.
#[derive(Args, Debug)]
#[command(
    long_about = "Chat with an agent: an agent file in this process, or an agent of a mesh through its A2A \
                  endpoint. Answers are shown as they arrive, with a line for each tool call; without a \
                  terminal, answers are plain lines. Questions of the agent to a person are asked here.\n\n\
                  A chat is one session. On a mesh an agent keeps it if its file has `session`; --session \
                  continues an earlier one.\n\n\
                  /cost, /tools, /log and /exit are commands; Ctrl-C cancels the current turn.",
    after_help = "Examples:\n  sinew chat clerk\n  sinew chat clerk 'Where is A-17?'\n  sinew chat clerk --mesh --session orders\n  \
                  echo 'Where is A-17?' | sinew chat clerk"
)]
pub(crate) struct ChatArgs {
    /// Name or file of the agent
    name: String,
    /// First message; further messages are read from stdin
    #[arg(value_name = "MESSAGE")]
    message: Option<String>,
    /// Session to continue, on a mesh [default: a new one]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Use the model of this alias, and no other, in all agents whose files have it
    #[arg(long, value_name = "ALIAS")]
    model: Option<String>,
    /// Agent files, or folders with them [default: . and agent-cards/]
    #[arg(short, long, value_name = "PATH")]
    agents: Vec<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Sums over a chat.
#[derive(Default)]
struct ChatCost {
    messages: u64,
    models: ModelTotals,
}

impl ChatCost {
    fn add(&mut self, usage: &Value) {
        self.messages += 1;
        self.models.add(TaskUsage::of(usage).unwrap_or_default().total());
    }

    fn line(&self) -> String {
        let ModelTotals { turns, tool_calls, input_tokens, output_tokens, cost_usd, .. } = self.models;
        let usd = cost_usd.map_or_else(String::new, |usd| format!(", ${usd:.4}"));
        let count = |number: u64, noun| words::count(usize::try_from(number).unwrap_or(usize::MAX), noun);
        format!(
            "{}, {}, {}, {input_tokens} tokens in, {output_tokens} out{usd}",
            count(self.messages, "message"),
            count(turns, "turn"),
            count(tool_calls, "tool call"),
        )
    }
}

/// Chats until the input ends.
pub(crate) fn chat(args: &ChatArgs, output: &Output) -> Result<Exit, Failure> {
    block(talk(args, output))
}

async fn talk(args: &ChatArgs, output: &Output) -> Result<Exit, Failure> {
    let names_files = !args.agents.is_empty() || args.model.is_some() || args.name.contains(".agent.");
    let (people, mut questions) = AskedPeople::new();
    let mut partner = if args.mesh.is_meant(names_files) {
        if args.model.is_some() {
            return Err(Failure::usage(
                "--model applies to agent files only; an agent of a mesh has its own model",
            ));
        }
        ChatPartner::on_mesh(&args.mesh, &args.name, args.session.as_deref(), people).await?
    } else {
        if args.session.is_some() {
            return Err(Failure::usage(
                "--session applies to agents of a mesh only; a chat with an agent file is always a new session",
            ));
        }
        {
            let places = (args.agents.as_slice(), args.trust);
            ChatPartner::in_process(&args.name, places, args.model.as_deref(), people, output)?
        }
    };
    let mut lines = InputLines::read();
    let mut cost = ChatCost::default();
    let mut next = args.message.clone();
    loop {
        let line = match next.take() {
            Some(line) => line,
            None => match lines.next("> ").await {
                Some(line) => line,
                None => break,
            },
        };
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => break,
            "/help" => output.note_block(HELP),
            "/cost" => output.note(&cost.line()),
            "/tools" => output.note_block(&partner.tools().await?),
            "/log" => output.note_block(&partner.log().await?),
            command if command.starts_with('/') && !command.contains(' ') => {
                output.note(&format!("{command} is not a command\n{HELP}").replace('\n', "; "));
            }
            text => {
                let mut stream = AnswerStream::of_chat(&args.name, output);
                let turn =
                    Box::pin(turn(&mut partner, text, &mut stream, (&mut lines, &mut questions), output))
                        .await?;
                show(&turn, &mut stream, &mut cost, output);
            }
        }
    }
    Ok(Exit::Ok)
}

/// One message and its answer.
async fn turn(
    partner: &mut ChatPartner,
    text: &str,
    stream: &mut AnswerStream<'_>,
    (lines, questions): (&mut InputLines, &mut terminal::Questions),
    output: &Output,
) -> Result<ChatTurn, Failure> {
    let cancel = CancellationToken::new();
    let (said, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    let mut answering = std::pin::pin!(partner.ask(text, said, cancel.clone()));
    let turn = loop {
        tokio::select! {
            biased;
            Some(value) = hearing.recv() => stream.tell(&value),
            Some(question) = questions.recv() => question.put(lines, output).await,
            interrupted = tokio::signal::ctrl_c(), if !cancel.is_cancelled() => {
                if interrupted.is_ok() {
                    output.note("cancelled");
                }
                cancel.cancel();
            }
            turn = &mut answering => break turn?,
        }
    };
    while let Ok(value) = hearing.try_recv() {
        stream.tell(&value);
    }
    Ok(turn)
}

fn show(turn: &ChatTurn, stream: &mut AnswerStream<'_>, cost: &mut ChatCost, output: &Output) {
    cost.add(&turn.usage);
    match &turn.output {
        Ok(answer) if output.is_machine() => {
            output.value(&json!({"output": answer, "usage": turn.usage}), |_| String::new());
        }
        Ok(Value::Object(members))
            if members.len() == 1 && members.get("text").is_some_and(Value::is_string) =>
        {
            stream.answer(&members["text"]);
        }
        Ok(answer) => stream.answer(answer),
        // A turn that fails does not end the chat.
        Err(fault) => {
            stream.answer(&Value::String(String::new()));
            output.failure(&fault_failure(fault));
        }
    }
}
