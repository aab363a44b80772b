//! The skill `find` of a mesh: a message with a query gets the agents and workflows that fit it best.
//!
//! The gateway answers it itself, with a message instead of a task. The entries have the members of ARD
//! (section 7.5) and those that a caller needs next.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sinew_operations::catalogue::{CatalogueKind, CatalogueQuery};
use sinew_protocol::a2a::{
    A2aError, AgentSkill, CoreMethod, PartContent, SendMessageRequest, check_message, part_data,
};
use sinew_protocol::card;
use sinew_protocol::catalogue::Stage;
use sinew_protocol::jsonrpc::raw;

use crate::ard;
use crate::mcp::MAX_SCHEMA_BYTES;
use crate::operations::{A2aOperations, Endpoint, OperationCall, OperationReply, TaskStream};
use crate::operations::{named_skill, read_params, short};
use crate::state::GatewayState;

/// Id of the skill, unless an agent or workflow that the caller may see has this name.
const FIND: &str = "find";
/// Id of the skill where [`FIND`] is the name of an agent.
const FIND_SKILLS: &str = "find_skills";
/// Number of entries, unless the caller asks for another.
const HITS: usize = 10;
/// Maximum number of entries.
const MAX_HITS: usize = 50;

/// What a message to the skill asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FindRequest {
    #[serde(alias = "text")]
    query: String,
    #[serde(alias = "limit")]
    max: Option<usize>,
    kind: Option<CatalogueKind>,
    stage: Option<Stage>,
    maintainer: Option<String>,
    label: Option<String>,
    tag: Option<String>,
}

/// Returns the id of the skill for this caller.
fn id(operations: &A2aOperations) -> &'static str {
    if operations.has_card(FIND) { FIND_SKILLS } else { FIND }
}

/// Returns the skill as cards list it.
pub(crate) fn skill(operations: &A2aOperations) -> AgentSkill {
    let json = || vec!["application/json".to_owned()];
    AgentSkill {
        id: id(operations).to_owned(),
        name: "Find skills".to_owned(),
        description: "Searches the agents and workflows of this mesh by what they do. Takes a text, or data with \
                      query and max, kind, stage, maintainer, label or tag. Returns the entries that fit best; \
                      call one with its agent as metadata.skill."
            .to_owned(),
        tags: vec!["search".to_owned(), "catalogue".to_owned()],
        examples: Some(vec!["refund an order".to_owned(), r#"{"query": "refund an order", "max": 5}"#.to_owned()]),
        input_modes: Some(vec!["application/json".to_owned(), "text/plain".to_owned()]),
        output_modes: Some(json()),
        security_requirements: None,
    }
}

/// Answers a message to the skill; `None` for any other call.
pub(crate) fn answer(
    state: &GatewayState,
    operations: &A2aOperations,
    call: &OperationCall,
    (method, params): (CoreMethod, &RawValue),
    base: &str,
) -> Result<Option<OperationReply>, A2aError> {
    let streams = match method {
        CoreMethod::SendMessage => false,
        CoreMethod::SendStreamingMessage => true,
        _ => return Ok(None),
    };
    if call.endpoint != Endpoint::Mesh {
        return Ok(None);
    }
    // What cannot be parsed is refused by the operation.
    let Ok(request) = read_params::<SendMessageRequest>(params) else { return Ok(None) };
    if request.message.task_id.is_some() || named_skill(&request).as_deref() != Some(id(operations)) {
        return Ok(None);
    }
    operations.check_call(call, method, params)?;
    check_message(&request.message, "message")?;
    let wanted = FindRequest::of(&request)?;
    let mut message = json!({
        "messageId": format!("{}-found", short(&request.message.id.0, 200)),
        "role": "ROLE_AGENT",
        "parts": [{"data": found(state, operations, wanted, base)?, "mediaType": "application/json"}],
    });
    if let Some(context) = &request.message.context_id {
        message["contextId"] = context.0.clone().into();
    }
    let reply = raw(&json!({"message": message}));
    Ok(Some(if streams {
        OperationReply::Stream(TaskStream::one(reply))
    } else {
        OperationReply::Value(reply)
    }))
}

impl FindRequest {
    /// Reads the request from the parts of a message: data, or text with the query.
    fn of(request: &SendMessageRequest) -> Result<Self, A2aError> {
        let mut read = Self::default();
        let mut texts = Vec::new();
        for part in &request.message.parts {
            match (&part.content, part_data(part)) {
                (PartContent::Text(text), _) => texts.push(text.as_str()),
                (_, Some(data)) => {
                    read = Self::deserialize(data).map_err(|error| {
                        A2aError::invalid_params(format!("message.parts: {}", short(&error.to_string(), 300)))
                    })?;
                }
                _ => {
                    return Err(A2aError::content_type_not_supported(
                        "a search takes text or data, no files",
                    ));
                }
            }
        }
        if read.query.is_empty() {
            read.query = texts.join(" ");
        }
        if read.query.trim().is_empty() {
            return Err(A2aError::invalid_params("query: expected what you want to do"));
        }
        Ok(read)
    }
}

/// Returns the entries that fit best, with schemas up to a total size.
fn found(
    state: &GatewayState,
    operations: &A2aOperations,
    wanted: FindRequest,
    base: &str,
) -> Result<Value, A2aError> {
    let limit = wanted.max.unwrap_or(HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        return Err(A2aError::invalid_params(format!("max: expected 1 to {MAX_HITS}")));
    }
    let FindRequest { query, kind, stage, maintainer, label, tag, .. } = wanted;
    let query = CatalogueQuery {
        q: Some(query),
        limit: Some(limit),
        kind,
        stage,
        maintainer,
        label,
        tag,
        ..CatalogueQuery::default()
    };
    let page = operations.find_entries(&query);
    let writer = ard::EntryWriter::new(state, operations, base);
    let mut left = MAX_SCHEMA_BYTES;
    let mut results = Vec::new();
    for entry in page.entries {
        let Some(card) = operations.card(&entry.name) else { continue };
        let found = entry.found.as_ref();
        let mut result = writer.result(&entry, &card);
        result["agent"] = entry.name.clone().into();
        let skill = found.and_then(|found| found.skill.clone());
        let skill = skill.or_else(|| card.skills.first().map(|skill| skill.id.clone()));
        result["skill"] = skill.unwrap_or_else(|| entry.name.clone()).into();
        for (member, schema) in
            [("inputSchema", card::input_schema(&card)), ("outputSchema", card::output_schema(&card))]
        {
            let Some(schema) = schema else { continue };
            match left.checked_sub(schema.to_string().len()) {
                Some(rest) => {
                    left = rest;
                    result[member] = schema.clone();
                }
                None => result["note"] = "the card has further schemas".into(),
            }
        }
        results.push(result);
    }
    let mut answer = json!({"results": results, "total": page.total});
    if !page.corrections.is_empty() {
        answer["corrections"] = json!(page.corrections);
    }
    Ok(answer)
}
