//! Chats with agents and workflows. Each message is an execution, so chats survive restarts of
//! every process.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_documents::agent::{AgentDetails, AgentKind, AgentRow, AgentState, TEXT_INPUT};
use sinew_documents::command::StartedExecution;
use sinew_documents::execution_list::{ExecutionPage, ExecutionRow};
use uuid::Uuid;

use super::chat_turn::{ChatExchange, read_turn, turn_part};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, LiveSource, TextFilter, page_or_problem, problem_box, read_only_reason,
    text_filter, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::schema_form::{read_input, schema_fields, schema_of};
use crate::shown_text::{self, command_line, time_mark};
use crate::status_mark::status_mark;

/// Label of executions that are messages of a chat, with the chat's id.
pub(super) const CHAT_LABEL: &str = "chat";
/// Label by which the messages of all chats are found.
pub(super) const KIND_LABEL: &str = "kind";
/// Messages of a chat that are shown, the latest.
const MAX_TURNS: &str = "20";
/// Number of recent messages that are searched for chats.
const MAX_RECENT: &str = "50";
/// Members that receive the text of a message if the schema has several.
const TEXT_MEMBERS: [&str; 8] = ["message", "text", "prompt", "question", "query", "input", "value", "name"];
/// Maximum clock difference between two machines, in milliseconds.
const CLOCK_DRIFT_MS: u64 = 60_000;
/// Milliseconds in a week: older chats are not listed.
const WEEK_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// Maximum size of the files that are inlined in a message.
const MAX_FILE_BYTES: usize = 512 << 10;

/// Chat that the address names.
#[derive(Clone, Debug, Default, Deserialize)]
struct ChatChoice {
    chat: Option<String>,
    /// Cursor in the list of messages; the page shows the messages before it, or the latest if
    /// absent.
    before: Option<String>,
}

/// Fields of a message by name; fields of the input form have a prefix.
type WrittenFields = BTreeMap<String, String>;

/// The page that lists agents to chat with.
pub(crate) async fn choose(request: PageRequest) -> Response {
    let page = choice_page(&request).await;
    page_or_problem(&request, page)
}

async fn choice_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let TextFilter { text, .. } = request.query()?;
    let text = text.as_deref().filter(|text| !text.is_empty());
    let agents_path = ApiPath::of(&["agents"]).with("workflows", "true").with_some("text", text);
    let mut agents: Vec<AgentRow> = request.api.get(&agents_path).await?;
    agents.retain(|agent| agent.state != AgentState::Offline);
    // Agents that a text suffices for come first.
    agents.sort_by_key(|agent| !agent.takes_text);
    let with_text = agents.iter().filter(|agent| agent.takes_text).count();
    let (texts, forms) = agents.split_at(with_text);
    let body = html! {
        div.head { h1 { "Chat" } (command_line(&CommandText::new("sinew chat NAME"))) }
        (text_filter(text))
        @if agents.is_empty() {
            p.empty {
                @if text.is_some() { "No matching agents. " a href=(PageAddress::of(&["chat"])) { "Show all" } "." }
                @else { "No agent is online. Start one with " code { "sinew serve agent FILE" } "." }
            }
        }
        (partners(texts))
        @if !forms.is_empty() {
            h2 { "Agents with an input form" }
            (partners(forms))
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Chat, "Chat", body))
}

/// Agents, each with a link to its chat.
fn partners(agents: &[AgentRow]) -> Markup {
    html! {
        ul.questions {
            @for agent in agents {
                li data-row {
                    a.title href=(PageAddress::chat(&agent.name)) { (shown_text::line(&agent.name, 80)) }
                    " " span.quiet { (agent.kind.word()) }
                    @if !agent.description.is_empty() { p { (shown_text::line(&agent.description, 200)) } }
                }
            }
        }
    }
}

pub(crate) async fn show(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = async {
        let ChatChoice { chat, before } = request.query()?;
        let chat = chat.filter(|id| is_chat_id(id)).unwrap_or_else(new_chat_id);
        let place = ChatWindow { chat: &chat, before: before.as_deref().filter(|before| !before.is_empty()) };
        chat_page(&name, place, &request, &WrittenFields::new(), None).await
    };
    let page = page.await;
    page_or_problem(&request, page)
}

/// Sends a message and shows its chat. If it is rejected, the page shows the form again with its
/// values.
pub(crate) async fn send(
    Path(name): Path<String>,
    request: PageRequest,
    Form(written): Form<WrittenFields>,
) -> Response {
    let chat = written.get("chat").filter(|id| is_chat_id(id)).cloned();
    let chat = chat.unwrap_or_else(new_chat_id);
    match send_message(&name, &chat, &request, &written).await {
        Ok(()) => {
            let address = PageAddress::chat(&name).with("chat", &chat);
            Redirect::to(&address.to_string()).into_response()
        }
        Err(error) => {
            let page =
                chat_page(&name, ChatWindow { chat: &chat, before: None }, &request, &written, Some(&error))
                    .await;
            page_or_problem(&request, page.map(|page| page.with_status(error.status())))
        }
    }
}

/// A chat, and the cursor of the shown messages.
#[derive(Clone, Copy)]
struct ChatWindow<'a> {
    chat: &'a str,
    before: Option<&'a str>,
}

/// Returns true if a text can be the id of a chat, which is the value of a label.
fn is_chat_id(id: &str) -> bool {
    (8..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Creates an id. It starts with the time, so a search can skip older executions.
fn new_chat_id() -> String {
    Uuid::now_v7().to_string()
}

/// The start of a chat in milliseconds since 1970 UTC; `None` if the id does not contain it.
fn began_at(chat: &str) -> Option<u64> {
    let (seconds, nanos) = Uuid::parse_str(chat).ok()?.get_timestamp()?.to_unix();
    Some(seconds * 1_000 + u64::from(nanos) / 1_000_000)
}

async fn send_message(
    name: &str,
    chat: &str,
    request: &PageRequest,
    written: &WrittenFields,
) -> Result<(), ConsoleError> {
    let agent: AgentDetails = request.api.get(&ApiPath::of(&["agents", name])).await?;
    let field = |name: &str| written.get(name).map_or("", String::as_str);
    let files = files_of(field("files"))?;
    let input = match field("text").trim() {
        // Files may be sent without a text.
        "" if !files.is_empty() && !written.keys().any(|key| key.starts_with("in.")) => Value::Null,
        "" => read_input(schema_of(agent.input_schema.as_ref()), written)?,
        text => text_input(
            schema_of(agent.input_schema.as_ref()),
            &with_file(text, field("file_name"), field("file_text"))?,
        ),
    };
    let target = if agent.kind == AgentKind::Workflow { "workflow" } else { "agent" };
    let mut body = Map::from_iter([
        (target.to_owned(), json!(name)),
        ("input".to_owned(), input),
        ("session".to_owned(), json!(chat)),
        ("labels".to_owned(), json!({ CHAT_LABEL: chat, KIND_LABEL: "chat" })),
    ]);
    if !files.is_empty() {
        body.insert("files".to_owned(), files.into());
    }
    // A message that is submitted twice is sent once.
    let key = field("message").trim();
    if !key.is_empty() {
        body.insert("idempotency_key".to_owned(), json!(format!("{chat}-{key}")));
    }
    let sent =
        request.api.post::<StartedExecution>(&ApiPath::of(&["executions"]), &Value::Object(body)).await?;
    tracing::debug!(execution = %sent.execution, "a message was sent");
    Ok(())
}

/// Files of a message: a JSON list of name, media type and base64 content, which the API checks.
fn files_of(text: &str) -> Result<Vec<Value>, ConsoleError> {
    match text.trim() {
        "" => Ok(Vec::new()),
        text => serde_json::from_str(text).map_err(|error| {
            ConsoleError::Input(format!("the files of the message cannot be read: {error}"))
        }),
    }
}

/// A message followed by the text of its files.
fn with_file(text: &str, name: &str, content: &str) -> Result<String, ConsoleError> {
    if content.is_empty() {
        return Ok(text.to_owned());
    }
    if content.len() > MAX_FILE_BYTES {
        return Err(ConsoleError::Input(format!(
            "the file has {}; the maximum in a message is {}",
            shown_text::size(content.len() as u64),
            shown_text::size(MAX_FILE_BYTES as u64)
        )));
    }
    Ok(format!("{text}\n\nFile {}:\n{content}", shown_text::line(name, 200)))
}

/// The input for a text: a JSON object as is; otherwise an object with the member that the author named
/// or the schema's text member, or the text itself.
fn text_input(schema: &Value, text: &str) -> Value {
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
        return object;
    }
    if let Some(name) = schema[TEXT_INPUT].as_str() {
        return json!({ name: text });
    }
    let members = schema["properties"].as_object();
    let is_text = |member: &Value| member["type"] == "string" || member["type"].is_null();
    let texts: Vec<&String> =
        members.into_iter().flatten().filter(|(_, schema)| is_text(schema)).map(|(name, _)| name).collect();
    let known = TEXT_MEMBERS.iter().find_map(|name| texts.iter().find(|one| one.as_str() == *name).copied());
    match (texts.as_slice(), known) {
        ([only], _) => json!({ only.as_str(): text }),
        (_, Some(name)) => json!({ name.as_str(): text }),
        ([], None) if schema["type"] == "object" => json!({ "text": text }),
        _ => json!(text),
    }
}

async fn chat_page(
    name: &str,
    ChatWindow { chat, before }: ChatWindow<'_>,
    request: &PageRequest,
    written: &WrittenFields,
    error: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let agent: AgentDetails = request.api.get(&ApiPath::of(&["agents", name])).await?;
    let workflow = if agent.kind == AgentKind::Workflow { name.to_owned() } else { format!("call:{name}") };
    let since = began_at(chat).map(|at| at.saturating_sub(CLOCK_DRIFT_MS).to_string());
    let week_ago = request.now.ms().saturating_sub(WEEK_MS);
    let label = format!("{CHAT_LABEL}={chat}");
    let of_partner = ApiPath::of(&["executions"]).with("workflow", &workflow);
    let said_path = of_partner
        .clone()
        .with("label", &label)
        .with("limit", MAX_TURNS)
        .with_some("since", since.as_deref())
        .with_some("cursor", before);
    let recent_path = of_partner
        .with("label", &format!("{KIND_LABEL}=chat"))
        .with("limit", MAX_RECENT)
        .with("since", &week_ago.to_string());
    let (said, recent) = futures_util::future::try_join(
        request.api.get::<ExecutionPage>(&said_path),
        request.api.get::<ExecutionPage>(&recent_path),
    )
    .await?;
    let ExecutionPage { executions: mut rows, next: earlier, .. } = said;
    rows.sort_by_key(|row| row.started);
    let turns =
        futures_util::future::join_all(rows.iter().map(|row| read_turn(request, &row.execution))).await;
    let open = turns.iter().flatten().rfind(|turn| turn.execution.ended.is_none());
    let source = open.map_or(LiveSource::Still, |turn| {
        LiveSource::Events(ApiPath::of(&["executions", &turn.execution.execution, "events"]).address())
    });
    let body = html! {
        div.head {
            h1 { "Chat with " (shown_text::line(&agent.name, 80)) }
            (command_line(&CommandText::new("sinew chat").word(&agent.name)))
        }
        div.chat {
            section.said aria-label="Messages" {
                @if let Some(earlier) = &earlier {
                    p { a rel="next" href=(PageAddress::chat(name).with("chat", chat).with("before", earlier)) { "Earlier messages" } }
                }
                @if turns.is_empty() { p.empty { (greeting(&agent)) } }
                @for turn in &turns { (turn_of(request, name, chat, turn)) }
                @if let Some(error) = error { (problem_box(error)) }
                @if before.is_some() { p { a href=(PageAddress::chat(name).with("chat", chat)) { "Latest messages" } } }
                @else if let Some(reason) = read_only_reason(request) { p.notice { (reason) } }
                @else { (composer(request, &agent, chat, turns.len(), written)) }
            }
            aside aria-label="Chats" { (recent_list(request, name, chat, &recent.executions)) }
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Chat, format!("Chat with {name}"), body).live(source))
}

fn turn_of(
    request: &PageRequest,
    name: &str,
    chat: &str,
    turn: &Result<ChatExchange, ConsoleError>,
) -> Markup {
    match turn {
        Ok(turn) => turn_part(request, &PageAddress::chat(name).with("chat", chat), turn),
        Err(error) => problem_box(error),
    }
}

fn greeting(agent: &AgentDetails) -> String {
    match agent.description.as_str() {
        "" => "No messages yet.".to_owned(),
        text => shown_text::line(text, 600),
    }
}

fn composer(
    request: &PageRequest,
    agent: &AgentDetails,
    chat: &str,
    turns: usize,
    written: &WrittenFields,
) -> Markup {
    let has_form = schema_of(agent.input_schema.as_ref())["properties"]
        .as_object()
        .is_some_and(|members| !members.is_empty());
    let text = written.get("text").map_or("", String::as_str);
    html! {
        form.steer #write method="post" action=(PageAddress::chat(&agent.name)) {
            (token_field(request))
            input type="hidden" name="chat" value=(chat);
            // The position in the chat: a form that is submitted twice sends one message.
            input type="hidden" name="message" value=(format!("{turns}-{}", request.now.ms()));
            label { span { "Message" } textarea name="text" rows="3" data-send autofocus { (text) } }
            div #attach hidden {
                label { span { "Files" } input type="file" multiple data-attach; }
                span #attached.quiet role="status" {}
                input type="hidden" name="file_name"; input type="hidden" name="file_text"; input type="hidden" name="files";
            }
            @if has_form {
                details open[written.keys().any(|key| key.starts_with("in."))] {
                    summary { "Fill in input fields instead" }
                    (schema_fields(schema_of(agent.input_schema.as_ref()), written))
                }
            }
            div.actions {
                button.primary type="submit" data-command={ "sinew chat " (shown_text::name(&agent.name)) } { "Send" }
                a.button href=(PageAddress::chat(&agent.name)) { "New chat" }
            }
        }
    }
}

/// The chats of the latest messages, without duplicates.
fn recent_list(request: &PageRequest, name: &str, shown: &str, rows: &[ExecutionRow]) -> Markup {
    let partner =
        |row: &ExecutionRow| row.workflow.strip_prefix("call:").unwrap_or(row.workflow.as_str()).to_owned();
    let mut seen: Vec<(&str, &ExecutionRow)> = Vec::new();
    for row in rows {
        let Some(id) = row.attributes.labels.get(CHAT_LABEL) else { continue };
        if !seen.iter().any(|(known, _)| known == id) {
            seen.push((id, row));
        }
    }
    html! {
        h2 { "Chats of the last week" }
        @if seen.is_empty() { p.empty { "No chats." } }
        ul.questions {
            @for (id, row) in seen.into_iter().take(20) {
                @let with = partner(row);
                li data-row aria-current=[(id == shown).then_some("true")] {
                    (status_mark(row.status)) " "
                    a href=(PageAddress::chat(&with).with("chat", id)) { (shown_text::line(if with.is_empty() { name } else { &with }, 60)) }
                    " " span.quiet { (time_mark(row.started, request.now)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_go_where_the_schema_wants_them() {
        let check = |schema: Value, text: &str, expected: Value| {
            assert_eq!(text_input(&schema, text), expected, "{schema} {text}");
        };
        check(Value::Null, "hello", json!("hello"));
        check(Value::Null, "{\"a\": 1}", json!({"a": 1}));
        check(json!({"type": "object"}), "hello", json!({"text": "hello"}));
        check(json!({"properties": {"what": {"type": "string"}}}), "hello", json!({"what": "hello"}));
        check(
            json!({"properties": {"a": {"type": "string"}, "text": {"type": "string"}}, "x-text-input": "a"}),
            "hello",
            json!({"a": "hello"}),
        );
        check(
            json!({"properties": {"count": {"type": "integer"}, "message": {"type": "string"}, "tone": {"type": "string"}}}),
            "hello",
            json!({"message": "hello"}),
        );
        check(json!({"properties": {"count": {"type": "integer"}}}), "[1]", json!("[1]"));
    }

    #[test]
    fn chats_have_names_that_labels_may_have() {
        assert!(is_chat_id(&new_chat_id()));
        for wrong in ["", "short", "has space in it", "comma,label=x", "<script>alert(1)", &"x".repeat(65)] {
            assert!(!is_chat_id(wrong), "{wrong}");
        }
    }

    #[test]
    fn files_go_behind_the_message() {
        assert_eq!(with_file("see", "", "").unwrap(), "see");
        assert_eq!(with_file("see", "a.txt", "x\n").unwrap(), "see\n\nFile a.txt:\nx\n");
        assert!(with_file("see", "a", &"x".repeat(MAX_FILE_BYTES + 1)).is_err());
    }
}
