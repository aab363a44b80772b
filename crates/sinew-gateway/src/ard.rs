//! Agentic Resource Discovery v0.9: the catalogue document, and the registry that searches it.
//!
//! `GET /.well-known/ai-catalog.json` names the registry (section 4), `POST /ard/search` ranks entries
//! (7.2), `POST /ard/explore` counts them (7.3) and `GET /ard/agents` lists them (7.4). Entries also have
//! `mediaType`, the name of `type` in AI Catalog 1.0.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, Request};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_documents::agent::AgentKind;
use sinew_documents::catalogue::CatalogueEntry;
use sinew_operations::catalogue::CatalogueQuery;
use sinew_protocol::Token;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::unique_keys::read_unique;

use crate::access::CallerIdentity;
use crate::file_link::PATH_SEGMENT;
use crate::http_error::HttpProblem;
use crate::operations::{A2aOperations, short};
use crate::request_body::{BodyError, read_body};
use crate::state::GatewayState;

/// Path of the registry.
pub(crate) const BASE: &str = "/ard";
/// Media types of agents and of registries.
const AGENT_TYPE: &str = "application/a2a-agent-card+json";
const REGISTRY_TYPE: &str = "application/ai-registry+json";
/// Relevance below which an entry is not in the matched set of a text.
const CUTOFF: u8 = 15;
/// Maximum number of entries that are matched by a text, and that the document lists.
const MAX_MATCHED: usize = 1_000;
/// Number of entries of a page of results and of a list, and their maximum.
const RESULTS: usize = 10;
const LISTED: usize = 20;
const MAX_PAGE: usize = 100;
/// Numbers of examples that the schema allows.
const MIN_EXAMPLES: usize = 2;
const MAX_EXAMPLES: usize = 5;
/// Maximum number of constraints of a filter, and of facets.
const MAX_CONSTRAINTS: usize = 16;
/// Number of buckets of a facet.
const BUCKETS: usize = 20;
/// Maximum length of a client's text in an error.
const MAX_SHOWN: usize = 100;
/// Fields by which entries are filtered and counted, besides those of `metadata`.
const FIELDS: [&str; 6] = ["type", "tags", "capabilities", "publisher", "version", "identifier"];

/// An error in the form of section 7: its status, and the text.
struct ArdError(StatusCode, &'static str, String);

fn invalid(text: impl Into<String>) -> ArdError {
    ArdError(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", text.into())
}

impl IntoResponse for ArdError {
    fn into_response(self) -> Response {
        let Self(status, code, message) = self;
        (status, axum::Json(json!({"errorCode": code, "message": message}))).into_response()
    }
}

/// Operation of the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArdOperation {
    /// The catalogue document.
    Document,
    /// Ranked entries.
    Search,
    /// Counts of entries.
    Explore,
    /// All entries by name.
    List,
}

/// Answers a request.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    operation: ArdOperation,
    request: Request,
) -> Response {
    if state.publisher.is_none() {
        let text = "this gateway has no public name for its entries: set --public-url or --publisher";
        return HttpProblem::not_found(text).into_response();
    }
    let operations = state.operations_of(&caller);
    let (parts, body) = request.into_parts();
    let base = state.base_url(&parts.headers, &parts.uri);
    let writer = EntryWriter::new(&state, &operations, &base);
    let answer = match operation {
        ArdOperation::Document => Ok(document(&writer)),
        ArdOperation::List => list(&writer, &parts.uri),
        ArdOperation::Search | ArdOperation::Explore => {
            let body = match read_body(&state.limits, body).await {
                Ok(body) => body,
                Err(BodyError::TooLarge(text)) => {
                    let error = ArdError(StatusCode::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT", text.to_owned());
                    return error.into_response();
                }
                Err(BodyError::Broken) => return invalid("the request body is incomplete").into_response(),
            };
            match operation {
                ArdOperation::Explore => read(&body).and_then(|request| explore(&writer, &request)),
                _ => read(&body).and_then(|request| search(&writer, request)),
            }
        }
    };
    match answer {
        Ok(value) => ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response(),
        Err(error) => error.into_response(),
    }
}

fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, ArdError> {
    let value: Value = read_unique(body).map_err(|error| invalid(short(&error.to_string(), 300)))?;
    T::deserialize(value).map_err(|error| invalid(short(&error.to_string(), 300)))
}

/// Writes entries of the catalogue in the form of ARD.
pub(crate) struct EntryWriter<'a> {
    operations: &'a A2aOperations,
    base: &'a str,
    publisher: String,
}

impl<'a> EntryWriter<'a> {
    /// Creates a writer of entries whose addresses begin with `base`.
    pub(crate) fn new(state: &GatewayState, operations: &'a A2aOperations, base: &'a str) -> Self {
        let host = || {
            let url: url::Url = base.parse().ok()?;
            Some(url.host_str()?.to_owned())
        };
        let publisher = state.publisher.clone().or_else(host).unwrap_or_else(|| "localhost".to_owned());
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let publisher = publisher.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect();
        Self { operations, base, publisher }
    }

    fn identifier(&self, name: &str) -> String {
        format!("urn:air:{}:{}:{name}", self.publisher, Token::of(self.operations.mesh_namespace()))
    }

    /// Returns the entry of the registry itself.
    fn registry(&self) -> Value {
        json!({
            "identifier": self.identifier("registry"),
            "displayName": format!("Search of mesh {}", self.operations.mesh_namespace()),
            "type": REGISTRY_TYPE,
            "mediaType": REGISTRY_TYPE,
            "url": format!("{}{BASE}", self.base),
        })
    }

    /// Returns the entry of an agent or workflow.
    pub(crate) fn entry(&self, entry: &CatalogueEntry, card: &AgentCard) -> Value {
        let kind = match entry.kind {
            AgentKind::Agent => "agent",
            AgentKind::Workflow => "workflow",
        };
        let mut tags = vec![kind.to_owned()];
        tags.extend(entry.tags.iter().filter(|tag| *tag != kind).cloned());
        let mut metadata = Map::new();
        metadata.insert("kind".to_owned(), kind.into());
        metadata.insert("stage".to_owned(), entry.stage.name().into());
        metadata.insert("sideEffects".to_owned(), entry.side_effects.into());
        let texts = [
            ("maintainer", &entry.maintainer),
            ("replacedBy", &entry.replaced_by),
            ("resembles", &entry.resembles),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                metadata.insert(name.to_owned(), text.clone().into());
            }
        }
        metadata
            .extend(entry.labels.iter().map(|(key, value)| (format!("label.{key}"), value.clone().into())));
        let mut written = json!({
            "identifier": self.identifier(Token::of(&entry.name).as_str()),
            "displayName": entry.name,
            "type": AGENT_TYPE,
            "mediaType": AGENT_TYPE,
            "url": format!(
                "{}/agents/{}/.well-known/agent-card.json",
                self.base,
                utf8_percent_encode(&entry.name, PATH_SEGMENT)
            ),
            "description": entry.description,
            "tags": tags,
            "capabilities": card.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(),
            "version": card.version,
            "metadata": metadata,
        });
        let mut examples: Vec<&String> = entry.examples.iter().collect();
        examples.dedup();
        if examples.len() >= MIN_EXAMPLES {
            examples.truncate(MAX_EXAMPLES);
            written["representativeQueries"] = json!(examples);
        }
        written
    }

    /// Returns an entry that a search found, with its score.
    pub(crate) fn result(&self, entry: &CatalogueEntry, card: &AgentCard) -> Value {
        let mut written = self.entry(entry, card);
        written["score"] = entry.found.as_ref().map_or(0, |found| found.score).into();
        written["source"] = format!("{}{BASE}", self.base).into();
        written
    }

    /// Returns the entries that a text and a filter match: the best first, or by name without a text.
    fn matched(&self, text: Option<&str>, filter: &Filter, most: usize) -> Vec<Value> {
        let query = CatalogueQuery { q: text.map(str::to_owned), ..CatalogueQuery::default() };
        // The filter applies before the ranking, to the entry as results show it.
        let records = self.operations.records();
        let wanted = |card: &AgentCard| {
            filter.is_empty() || filter.admits(self, &self.entry(&records.entry(card), card))
        };
        let page = self.operations.find_selected(most, &query, wanted);
        let entries = page
            .entries
            .iter()
            .filter(|entry| entry.found.as_ref().is_none_or(|found| found.score >= CUTOFF));
        let written = entries.filter_map(|entry| {
            let card = self.operations.card(&entry.name)?;
            Some(if text.is_some() { self.result(entry, &card) } else { self.entry(entry, &card) })
        });
        written.collect()
    }

    /// Returns the values of an entry's field.
    fn values<'v>(&'v self, entry: &'v Value, field: &str) -> Vec<String> {
        let value = match field.strip_prefix("metadata.") {
            Some(name) => entry["metadata"].get(name),
            None if field == "publisher" => return vec![self.publisher.clone()],
            None => entry.get(field),
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(text).collect(),
            Some(value) => vec![text(value)],
        }
    }
}

/// Constraints: each field has one of the values.
#[derive(Debug, Default)]
struct Filter(Vec<(String, Vec<String>)>);

impl Filter {
    fn of(given: &Map<String, Value>) -> Result<Self, ArdError> {
        if given.len() > MAX_CONSTRAINTS {
            return Err(invalid(format!("query.filter: at most {MAX_CONSTRAINTS} fields are supported")));
        }
        let read = given.iter().map(|(field, value)| {
            check_field(field)?;
            let wrong = || invalid(format!("query.filter: {field}: expected texts"));
            let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(wrong);
            let values = match value {
                Value::Array(items) => items.iter().map(text).collect::<Result<_, _>>()?,
                value => vec![text(value)?],
            };
            Ok((field.clone(), values))
        });
        read.collect::<Result<_, _>>().map(Self)
    }

    /// Reads the filter of a list: `FIELD = 'VALUE'`, several with `AND` between them.
    fn of_expression(text: &str) -> Result<Self, ArdError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let parts: Vec<&str> = text.split(" AND ").collect();
        if parts.len() > MAX_CONSTRAINTS {
            return Err(invalid(format!("filter: at most {MAX_CONSTRAINTS} fields are supported")));
        }
        let read = parts.into_iter().map(|part| {
            let wrong = || {
                let shown = short(part, MAX_SHOWN);
                invalid(format!("filter: {shown:?} is not FIELD = 'VALUE'; combine several with AND"))
            };
            let (field, value) = part.split_once('=').ok_or_else(wrong)?;
            let value = value.trim().strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            check_field(field.trim())?;
            Ok((field.trim().to_owned(), vec![value.ok_or_else(wrong)?.to_owned()]))
        });
        read.collect::<Result<_, _>>().map(Self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn admits(&self, writer: &EntryWriter<'_>, entry: &Value) -> bool {
        self.0.iter().all(|(field, wanted)| {
            let values = writer.values(entry, field);
            wanted.iter().any(|one| values.contains(one))
        })
    }
}

fn check_field(field: &str) -> Result<(), ArdError> {
    if FIELDS.contains(&field) || field.starts_with("metadata.") {
        return Ok(());
    }
    let text = format!(
        "the field {:?} is not supported; use {} or metadata.*",
        short(field, MAX_SHOWN),
        FIELDS.join(", ")
    );
    Err(invalid(text))
}

/// Builds the catalogue document. It lists the entries unless they are too many; the registry finds them.
fn document(writer: &EntryWriter<'_>) -> Value {
    let mut entries = vec![writer.registry()];
    let listed = writer.matched(None, &Filter::default(), MAX_MATCHED + 1);
    if listed.len() <= MAX_MATCHED {
        entries.extend(listed);
    }
    let display = format!("Sinew mesh {}", writer.operations.mesh_namespace());
    json!({"specVersion": "1.0", "host": {"displayName": display}, "entries": entries})
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryModel {
    text: Option<String>,
    #[serde(default)]
    filter: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SearchRequest {
    query: QueryModel,
    /// Accepted and ignored: this registry knows no other.
    #[serde(default, rename = "federation")]
    _federation: Federation,
    page_size: Option<usize>,
    page_token: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Federation {
    #[default]
    Auto,
    Referrals,
    None,
}

fn page_size(given: Option<usize>, default: usize) -> Result<usize, ArdError> {
    let size = given.unwrap_or(default);
    if (1..=MAX_PAGE).contains(&size) {
        return Ok(size);
    }
    Err(invalid(format!("pageSize: expected 1 to {MAX_PAGE}")))
}

/// Returns a page of items with the token of the next one.
fn page(
    mut items: Vec<Value>,
    size: usize,
    token: Option<&str>,
) -> Result<(Vec<Value>, Option<String>), ArdError> {
    let wrong = || invalid("pageToken: not one of this registry");
    let start = token.map(str::parse::<usize>).transpose().map_err(|_| wrong())?.unwrap_or(0);
    if start > items.len() {
        return Err(wrong());
    }
    let mut rest = items.split_off(start);
    let next = (rest.len() > size).then(|| (start + size).to_string());
    rest.truncate(size);
    Ok((rest, next))
}

fn search(writer: &EntryWriter<'_>, request: SearchRequest) -> Result<Value, ArdError> {
    let size = page_size(request.page_size, RESULTS)?;
    let text = request.query.text.filter(|text| !text.trim().is_empty());
    let text = text.ok_or_else(|| invalid("query.text: expected what you want to do"))?;
    let filter = Filter::of(&request.query.filter)?;
    let matched = writer.matched(Some(&text), &filter, MAX_MATCHED);
    let (results, next) = page(matched, size, request.page_token.as_deref())?;
    let mut answer = json!({"results": results});
    if let Some(next) = next {
        answer["pageToken"] = next.into();
    }
    Ok(answer)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExploreRequest {
    #[serde(default)]
    query: QueryModel,
    result_type: ResultType,
}

#[derive(Debug, Deserialize)]
struct ResultType {
    facets: Vec<FacetRequest>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FacetRequest {
    field: String,
    limit: Option<usize>,
    min_count: Option<usize>,
}

fn explore(writer: &EntryWriter<'_>, request: &ExploreRequest) -> Result<Value, ArdError> {
    let facets = &request.result_type.facets;
    if facets.is_empty() || facets.len() > MAX_CONSTRAINTS {
        return Err(invalid(format!("resultType.facets: expected 1 to {MAX_CONSTRAINTS} fields")));
    }
    facets.iter().try_for_each(|facet| check_field(&facet.field))?;
    let text = request.query.text.as_deref().filter(|text| !text.trim().is_empty());
    let most = if text.is_some() { MAX_MATCHED } else { usize::MAX };
    let matched = writer.matched(text, &Filter::of(&request.query.filter)?, most);
    let counted = facets.iter().map(|facet| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for value in matched.iter().flat_map(|entry| writer.values(entry, &facet.field)) {
            *counts.entry(value).or_default() += 1;
        }
        let mut buckets: Vec<(String, usize)> = counts.into_iter().collect();
        buckets.retain(|(_, count)| *count >= facet.min_count.unwrap_or(1));
        buckets.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let rest = buckets.split_off(buckets.len().min(facet.limit.unwrap_or(BUCKETS).min(MAX_PAGE)));
        let buckets: Vec<Value> =
            buckets.into_iter().map(|(value, count)| json!({"value": value, "count": count})).collect();
        let mut counted = json!({"buckets": buckets});
        if !rest.is_empty() {
            counted["otherCount"] = rest.iter().map(|(_, count)| count).sum::<usize>().into();
        }
        (facet.field.clone(), counted)
    });
    Ok(json!({"resultType": "facets", "facets": counted.collect::<Map<_, _>>()}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListQuery {
    filter: String,
    order_by: Option<String>,
    page_size: Option<usize>,
    page_token: Option<String>,
}

fn list(writer: &EntryWriter<'_>, uri: &Uri) -> Result<Value, ArdError> {
    let Query(query) =
        Query::<ListQuery>::try_from_uri(uri).map_err(|error| invalid(short(&error.body_text(), 300)))?;
    if query.order_by.as_deref().is_some_and(|order| !matches!(order, "displayName" | "displayName ASC")) {
        return Err(invalid("orderBy: entries are sorted by displayName only"));
    }
    let size = page_size(query.page_size, LISTED)?;
    let matched = writer.matched(None, &Filter::of_expression(&query.filter)?, usize::MAX);
    let total = matched.len();
    let (items, next) = page(matched, size, query.page_token.as_deref())?;
    let mut answer = json!({"items": items, "total": total});
    if let Some(next) = next {
        answer["pageToken"] = next.into();
    }
    Ok(answer)
}
