//! `sinew agent` on a mesh: cards as they are announced, calls through the A2A door.

use sinew_protocol::code;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_mesh::card::{AnnouncedCard, Cards};
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::a2a::{A2A_VERSION, CoreMethod, Message, Part, SendMessageRequest, Task, TaskState};
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::{Fault, header};

use super::{CallArgs, files};
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::remote::online;
use sinew_inspection::words;

/// No agent of this name is on the mesh.
const NO_SUCH_AGENT: &str = code::NO_SUCH_AGENT.as_str();
/// How long an answer is waited for when nobody says.
const PATIENCE: Duration = Duration::from_mins(5);

/// Lists agents.
pub(super) async fn list(connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let mesh = connection.open("cli").await?;
    mesh.admin().layout().await?;
    let cards = online(&mesh).await;
    let all = cards.list();
    let rows: Vec<Value> = all
        .iter()
        .map(|one| {
            let age = cards.age(&one.card.name).unwrap_or_default();
            json!({
                "name": one.card.name,
                "version": one.card.version,
                "kind": card::kind(&one.card).word(),
                "description": one.card.description,
                "skills": one.card.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(),
                "heartbeat_age_ms": age.as_millis() as u64,
            })
        })
        .collect();
    output.value(&rows, |_| match output.format {
        _ if all.is_empty() => "no agent is online".to_owned(),
        format => table(&cards, &all, format == Format::Wide),
    });
    for refused in cards.refused() {
        let agent = refused.agent.name().unwrap_or_else(|| refused.agent.to_string());
        output.note(&format!(
            "warning: the card of '{}' is refused: {}",
            words::one_line(&agent, 60),
            refused.reason
        ));
    }
    Ok(Exit::Ok)
}

fn table(cards: &Cards, all: &[Arc<AnnouncedCard>], wide: bool) -> String {
    let mut heads = vec!["NAME", "KIND", "VERSION", "HEARD"];
    if wide {
        heads.push("SKILLS");
    }
    heads.push("DESCRIPTION");
    let mut lines = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for one in all {
        let age = cards.age(&one.card.name).unwrap_or_default();
        let mut line = vec![
            words::one_line(&one.card.name, 60),
            card::kind(&one.card).word().to_owned(),
            words::one_line(&one.card.version, 20),
            format!("{} ago", words::duration(age.as_millis() as u64)),
        ];
        if wide {
            let skills: Vec<&str> = one.card.skills.iter().map(|skill| skill.id.as_str()).collect();
            line.push(words::one_line(&skills.join(","), 60));
        }
        line.push(words::one_line(&one.card.description, if wide { 200 } else { 60 }));
        lines.push(line);
    }
    words::columns(&lines)
}

/// The card of an agent that is online. Nothing ever stands in for another.
fn find(cards: &Cards, name: &str) -> Result<Arc<AnnouncedCard>, Failure> {
    cards.get(name).ok_or_else(|| {
        let all = cards.list();
        let failure = Failure::new(Exit::NotFound, NO_SUCH_AGENT, format!("no agent '{name}' is online"));
        match sinew_source::did_you_mean(name, all.iter().map(|one| one.card.name.as_str())) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => failure.hint("see `sinew agent list --mesh`"),
        }
    })
}

/// Says what an agent is.
pub(super) async fn describe(name: &str, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let mesh = connection.open("cli").await?;
    mesh.admin().layout().await?;
    let cards = online(&mesh).await;
    let found = find(&cards, name)?;
    let card = &found.card;
    let age = cards.age(name).unwrap_or_default();
    let document = json!({
        "name": card.name,
        "kind": card::kind(card).word(),
        "version": card.version,
        "description": card.description,
        "skills": card.skills,
        "input_schema": card::input_schema(card),
        "output_schema": card::output_schema(card),
        "delivery": format!("{:?}", card::delivery(card)).to_lowercase(),
        "heartbeat_age_ms": age.as_millis() as u64,
    });
    output.value(&document, |_| {
        let schema = |schema: Option<&Value>| {
            schema.map_or_else(|| "any JSON".to_owned(), |schema| words::one_line(&schema.to_string(), 300))
        };
        let skills: Vec<&str> = card.skills.iter().map(|skill| skill.id.as_str()).collect();
        let heard = format!("{} ago", words::duration(age.as_millis() as u64));
        let delivery = format!("{:?}", card::delivery(card)).to_lowercase();
        [
            format!(
                "{} {} ({})",
                words::one_line(&card.name, 100),
                words::one_line(&card.version, 40),
                card::kind(card).word()
            ),
            sinew_source::indented(&card.description),
            String::new(),
            format!("  input     {}", schema(card::input_schema(card))),
            format!("  output    {}", schema(card::output_schema(card))),
            format!("  skills    {}", words::one_line(&skills.join(", "), 200)),
            format!("  delivery  {delivery}"),
            format!("  heard     {heard}"),
        ]
        .join("\n")
    });
    Ok(Exit::Ok)
}

/// Prints a card as it was announced.
pub(super) async fn card(name: &str, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let mesh = connection.open("cli").await?;
    mesh.admin().layout().await?;
    let found = find(&online(&mesh).await, name)?;
    output.value(&found.card, |card| serde_json::to_string_pretty(card).unwrap_or_default());
    Ok(Exit::Ok)
}

/// Calls an agent.
pub(super) async fn call(args: &CallArgs, output: &Output) -> Result<Exit, Failure> {
    let (value, deadline) = (args.value()?, args.deadline()?);
    let ready = deadline.within("connecting and looking for the agent", async {
        let mesh = args.who.on.connection.open("cli").await?;
        mesh.admin().layout().await?;
        let found = find(&online(&mesh).await, &args.who.name)?;
        Ok((mesh, found))
    });
    let (mesh, found) = ready.await?;
    if card::kind(&found.card) == AgentKind::Workflow {
        output.note("this agent is a workflow: `sinew run` and `sinew tool call` start it with more to see");
    }
    let answer = ask(&mesh, &args.who.name, value, args.instruction.as_deref(), deadline.left()).await?;
    match answer {
        Ok(value) if output.is_machine() => output.value(&json!({ "output": value }), |_| String::new()),
        Ok(Value::String(text)) => output.text(&text),
        Ok(value) => output.text(&serde_json::to_string_pretty(&value).unwrap_or_default()),
        Err(fault) => return Err(files::failed(&fault)),
    }
    Ok(Exit::Ok)
}

/// Asks an agent through its A2A door, and waits for the answer.
async fn ask(
    mesh: &Mesh,
    agent: &str,
    input: Value,
    instruction: Option<&str>,
    patience: Option<Duration>,
) -> Result<Result<Value, Fault>, Failure> {
    let id = uuid::Uuid::now_v7().to_string();
    let node = MeshMessage::from(WorkflowNodeRequestData {
        workflow_name: "sinew-cli".to_owned(),
        node_id: id.clone(),
        ..WorkflowNodeRequestData::default()
    });
    let mut parts = vec![node.to_part(Vocabulary::Current)];
    parts.extend(instruction.map(Part::text));
    parts.push(Part::data(input));
    let message = Message::user(id.clone(), parts);
    let params = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    let method = Method::Core(CoreMethod::SendMessage);
    let request = Request::new(id.as_str(), method, &params);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    sinew_mesh::trace::TraceParent::fresh().put(&mut headers);
    let patience = patience.unwrap_or(PATIENCE);
    let reply =
        mesh.services().call_rpc(agent, method.as_str(), headers, request.to_bytes(), patience).await?;
    let unreadable = |why: String| {
        let text = format!("what agent '{agent}' answers cannot be read: {}", words::one_line(&why, 300));
        Failure::new(Exit::Failed, code::MESSAGE_CANNOT_BE_READ.as_str(), text)
    };
    let response = Response::read(&reply.body).map_err(|error| unreadable(error.to_string()))?;
    let mut result = match response.into_result() {
        Ok(result) => result,
        Err(error) => return Ok(Err(fault_of(&error))),
    };
    let task = result.get_mut("task").map(Value::take).unwrap_or_default();
    let task: Task = serde_json::from_value(task).map_err(|error| unreadable(error.to_string()))?;
    if matches!(task.status.state, TaskState::InputRequired | TaskState::AuthRequired) {
        let text = format!(
            "agent '{agent}' asks for more: {}",
            words::one_line(&format!("{:?}", task.status.state), 40)
        );
        return Err(Failure::new(Exit::Waiting, code::MESSAGE_CANNOT_BE_READ.as_str(), text));
    }
    let result = read_result(&task).map_err(|error| unreadable(error.to_string()))?;
    if let Some(fault) = result.fault {
        return Ok(Err(fault));
    }
    Ok(Ok(match result.output {
        NodeOutput::None => Value::Null,
        NodeOutput::Value(value) => value,
        NodeOutput::Address(address) => {
            let bytes = mesh.artifacts().fetch(&address).await?;
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        }
    }))
}
