//! Agent cards that a gateway serves: the mesh as one agent, and each agent with its HTTP
//! interfaces.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::utf8_percent_encode;
use serde_json::{Value, json};
use sinew_protocol::a2a::v0_3::add_old_members;
use sinew_protocol::a2a::{
    A2A_VERSION, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
};
use sinew_protocol::access::AccessRole;
use sinew_protocol::artifact::sha256;
use sinew_protocol::card::{self, AGENT_TYPE, SCHEMAS, VISUALISATION};
use sinew_protocol::catalogue_record::MAX_PINNED;
use url::Url;

use crate::card_signature::sign_card;
use crate::card_times::CardTimes;
use crate::file_link::PATH_SEGMENT;
use crate::operations::{A2aOperations, Endpoint, SKILL_EXTENSION};
use crate::options::GrpcAddressForm;
use crate::protected_resource::scope_of;
use crate::state::GatewayState;
use crate::{api, ard, search_skill};

/// Prefix of an agent's name in `tenant` of a gRPC call.
pub(crate) const AGENT_TENANT: &str = "agents/";
/// Cache lifetime of a card in seconds; short because agents start and stop.
const MAX_AGE_SECONDS: u32 = 30;
/// Number of skills up to which the card of a mesh lists them all.
const MAX_SKILLS: usize = 100;
/// Size of the skills of a mesh, with schemas and diagrams, up to which its card lists them all.
const MAX_SKILL_BYTES: usize = 256 << 10;
/// Extension URI: the card of a mesh is short, and its other skills are found by searching.
const SEARCH_EXTENSION: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/search/v1";
/// Protocol names of A2A's bindings over HTTP.
const HTTP_BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];
/// Protocol name of A2A's gRPC binding.
const GRPC_BINDING: &str = "GRPC";

/// Returns the card of an endpoint as these operations expose it, or `None` if its agent no longer
/// exists.
pub(crate) fn card_of(
    state: &GatewayState,
    operations: &A2aOperations,
    endpoint: &Endpoint,
    base: &str,
) -> Option<AgentCard> {
    let mut card = match endpoint {
        Endpoint::Mesh => mesh_card(state, operations, base),
        Endpoint::Agent(name) => agent_card(operations, operations.card(name)?, base, state.grpc_on_cards),
    };
    if state.authenticator.is_required() {
        require_credentials(&mut card, &state.authenticator.issuers());
    }
    if let Some(signer) = &state.signer {
        sign_card(&mut card, signer, base);
    }
    Some(card)
}

/// Declares the credentials that the gateway requires.
fn require_credentials(card: &mut AgentCard, issuers: &[String]) {
    card.capabilities.extended_agent_card = Some(true);
    let mut schemes = serde_json::Map::new();
    let bearer = "A key of `sinew gateway key create`, or a token of an OpenID provider of this gateway.";
    schemes.insert(
        "bearer".to_owned(),
        json!({"httpAuthSecurityScheme": {"scheme": "Bearer", "description": bearer}}),
    );
    for (nth, issuer) in issuers.iter().enumerate() {
        let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let scheme = json!({"openIdConnectSecurityScheme": {"openIdConnectUrl": address}});
        schemes.insert(format!("openid{}", nth + 1), scheme);
    }
    // A key has its role by definition; a token gets it from its scope.
    let scopes = |name: &str| match name {
        "bearer" => Vec::new(),
        _ => vec![scope_of(AccessRole::Client)],
    };
    let one_of = schemes.keys().map(|name| json!({"schemes": {name: {"list": scopes(name)}}}));
    let one_of: Vec<Value> = one_of.collect();
    // The JSON has the shape that the types deserialize.
    card.security_schemes = serde_json::from_value(Value::Object(schemes)).ok();
    card.security_requirements = serde_json::from_value(Value::Array(one_of)).ok();
}

/// Skills of the card of a mesh, and the extensions that describe them.
type MeshSkills = (Vec<AgentSkill>, Vec<AgentExtension>);

/// Returns the skills of a whole mesh: one for each workflow and agent of `listed`. `None` if they are too
/// many or too large for clients.
fn whole_skills(listed: &[AgentCard]) -> Option<MeshSkills> {
    if listed.len() > MAX_SKILLS {
        return None;
    }
    let skills: Vec<AgentSkill> = listed.iter().map(skill_of).collect();
    let mut schemas = BTreeMap::new();
    let mut drawings = BTreeMap::new();
    for card in listed {
        let (input, output) = (card::input_schema(card), card::output_schema(card));
        if input.is_some() || output.is_some() {
            schemas.insert(card.name.clone(), json!({"inputSchema": input, "outputSchema": output}));
        }
        if let Some(card::Visualisation::Mermaid(text)) = card::visualisation(card) {
            drawings.insert(card.name.clone(), Value::String(text));
        }
    }
    let extensions = vec![
        extension(SCHEMAS, "Input and output JSON schemas of skills.", json!({"skills": schemas})),
        extension(VISUALISATION, "Mermaid diagrams of workflows.", json!({"skills": drawings})),
    ];
    let bytes = serde_json::to_vec(&(&skills, &extensions)).map_or(usize::MAX, |bytes| bytes.len());
    (bytes <= MAX_SKILL_BYTES).then_some((skills, extensions))
}

/// Returns the skills of a short card: the pinned ones, and the one that searches the others.
fn short_skills(
    state: &GatewayState,
    operations: &A2aOperations,
    listed: &[AgentCard],
    base: &str,
) -> MeshSkills {
    let records = operations.records();
    let pinned = listed.iter().filter(|card| records.pins(card)).take(MAX_PINNED);
    let mut skills = vec![search_skill::skill(operations)];
    skills.extend(pinned.map(skill_of));
    let mut params = json!({"entries": listed.len(), "list": format!("{base}{}/catalogue", api::BASE)});
    if state.publisher.is_some() {
        params["search"] = format!("{base}{}/search", ard::BASE).into();
    }
    let description = "Further skills are found with the search skill; this card lists the pinned ones.";
    (skills, vec![extension(SEARCH_EXTENSION, description, params)])
}

/// Builds the card of the whole mesh. A card with many skills would not fit into the prompts of clients, so
/// it offers a search instead.
fn mesh_card(state: &GatewayState, operations: &A2aOperations, base: &str) -> AgentCard {
    let listed = operations.listed();
    let namespace = operations.mesh_namespace();
    let (skills, of_skills) =
        whole_skills(&listed).unwrap_or_else(|| short_skills(state, operations, &listed, base));
    let mut capabilities = AgentCapabilities::default();
    capabilities.streaming = Some(true);
    capabilities.push_notifications = Some(operations.pushes());
    capabilities.extended_agent_card = Some(false);
    let naming = extension(SKILL_EXTENSION, "A message names its skill in metadata.skill.", json!({}));
    capabilities.extensions = Some(std::iter::once(naming).chain(of_skills).collect());
    AgentCard {
        name: format!("Sinew mesh {namespace}"),
        description: format!("Workflows and agents of the mesh {namespace}. Each is a skill."),
        supported_interfaces: interfaces(base, "/a2a", None, state.grpc_on_cards),
        provider: Some(AgentProvider {
            organization: "Sinew".to_owned(),
            url: "https://github.com/sinew-mesh/sinew".to_owned(),
        }),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        documentation_url: None,
        capabilities,
        security_schemes: None,
        security_requirements: None,
        default_input_modes: modes(),
        default_output_modes: modes(),
        skills,
        signatures: None,
        icon_url: None,
        url: None,
    }
}

/// Builds the card of one agent. It lists only this gateway's interfaces: HTTP clients cannot use
/// the agent's own, and some reject a card that lists one. The agent's signature covered those, so
/// the gateway's signature replaces it.
fn agent_card(
    operations: &A2aOperations,
    mut card: AgentCard,
    base: &str,
    grpc: Option<GrpcAddressForm>,
) -> AgentCard {
    let name = utf8_percent_encode(&card.name, PATH_SEGMENT);
    card.supported_interfaces = interfaces(base, &format!("/agents/{name}"), Some(&card.name), grpc);
    card.capabilities.streaming = Some(true);
    card.capabilities.push_notifications = Some(operations.pushes());
    card.capabilities.extended_agent_card = Some(false);
    card.signatures = None;
    card.security_schemes = None;
    card.security_requirements = None;
    card
}

/// Scope of a card, which caches have to distinguish.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CardReaders {
    /// All callers get the same card.
    Everybody,
    /// Each caller gets a card with what it may see.
    EachCaller,
}

/// Returns a card with its tag, without a body for a client that has it cached.
pub(crate) fn respond(
    card: &AgentCard,
    request: &HeaderMap,
    times: &CardTimes,
    readers: CardReaders,
) -> Response {
    // Plain data with string keys always serializes. Signatures cover the members of 1.0 only.
    let mut shown = serde_json::to_value(card).unwrap_or_default();
    add_old_members(&mut shown);
    let body = serde_json::to_vec(&shown).unwrap_or_default();
    let tag = format!("\"{}\"", &sha256(&body)[..32]);
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    });
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (StatusCode::OK, body).into_response()
    };
    let headers = response.headers_mut();
    if !is_known {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let (shared, vary) = match readers {
        CardReaders::Everybody => ("public", "host"),
        CardReaders::EachCaller => ("private", "host, authorization, x-api-key"),
    };
    let values = [
        (header::LAST_MODIFIED, httpdate::fmt_http_date(times.first_shown(&tag))),
        (header::ETAG, tag),
        (header::CACHE_CONTROL, format!("{shared}, max-age={MAX_AGE_SECONDS}")),
    ];
    for (name, value) in values {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    headers.insert(header::VARY, HeaderValue::from_static(vary));
    response
}

/// Lists the interfaces of the mesh or of one agent. All agents share one gRPC path, so a member of
/// the request names the agent.
fn interfaces(
    base: &str,
    path: &str,
    agent: Option<&str>,
    grpc: Option<GrpcAddressForm>,
) -> Vec<AgentInterface> {
    let interface = |url: &str, binding: &str| {
        let mut interface = AgentInterface::new(url, binding);
        A2A_VERSION.clone_into(&mut interface.protocol_version);
        interface
    };
    let url = format!("{base}{path}");
    let mut all: Vec<AgentInterface> = HTTP_BINDINGS.map(|binding| interface(&url, binding)).into();
    if let Some(address) = grpc.and_then(|form| grpc_address(base, form)) {
        let mut grpc = interface(&address, GRPC_BINDING);
        grpc.tenant = agent.map(|name| format!("{AGENT_TENANT}{name}"));
        all.push(grpc);
    }
    all
}

/// Returns the gRPC address, or `None` if the gateway's public address has a path, which gRPC calls
/// cannot have.
fn grpc_address(base: &str, form: GrpcAddressForm) -> Option<String> {
    let url: Url = base.parse().ok().filter(|url: &Url| matches!(url.path(), "" | "/"))?;
    let authority = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
    Some(match form {
        GrpcAddressForm::Url => format!("{}://{authority}", url.scheme()),
        GrpcAddressForm::Authority => authority,
    })
}

/// Describes an agent as a skill of its mesh.
fn skill_of(card: &AgentCard) -> AgentSkill {
    let kind = match card::extension_params(card, AGENT_TYPE).and_then(|params| params.get("type")?.as_str())
    {
        Some("workflow") => "workflow",
        _ => "agent",
    };
    let own = card.skills.iter().find(|skill| skill.id == card.name).or(card.skills.first());
    let mut tags = vec![kind.to_owned()];
    tags.extend(own.iter().flat_map(|skill| &skill.tags).filter(|tag| *tag != kind).cloned());
    AgentSkill {
        id: card.name.clone(),
        name: card.name.clone(),
        description: card.description.clone(),
        tags,
        examples: own.and_then(|skill| skill.examples.clone()),
        input_modes: Some(card.default_input_modes.clone()),
        output_modes: Some(card.default_output_modes.clone()),
        security_requirements: None,
    }
}

fn extension(uri: &str, description: &str, params: Value) -> AgentExtension {
    let mut extension = AgentExtension::new(uri);
    extension.description = Some(description.to_owned());
    extension.params = Some(params);
    extension
}

fn modes() -> Vec<String> {
    vec!["application/json".to_owned(), "text/plain".to_owned()]
}
