//! Card of an external agent: fetched, verified, and reduced to what the mesh may see.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sinew_agents::{WebMethod, WebRequest};
use sinew_mesh::card::{self as card_rules, LARGEST_CARD, MOST_SKILLS};
use sinew_protocol::Token;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::a2a::v0_3::modern_card;
use sinew_protocol::artifact::sha256;
use sinew_protocol::card::SCHEMAS;
use sinew_protocol::unique_keys::read_unique;
use url::Url;

use crate::bridge_file::{BridgeSettings, RemoteBinding};
use crate::credentials::Credentials;
use crate::error::{BridgeError, quoted};
use crate::outside_hosts::OutsideHosts;

/// Maximum size of a card, in bytes. Pictures and similar data, and skills beyond the limits of a
/// mesh, are removed before it is announced.
const MAX_CARD_BYTES: usize = 2 << 20;
/// Timeout of a request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of redirects to a card.
const MAX_REDIRECTS: u32 = 3;
/// Maximum length of a name from a card.
const MAX_NAME: usize = 64;
/// Supported versions of A2A. An interface of 1.0 is preferred.
const VERSION_PREFIX: &str = "1.";
const OLD_VERSION_PREFIX: &str = "0.3";

/// Interface of an external agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteEndpoint {
    pub(crate) address: String,
    pub(crate) binding: RemoteBinding,
    pub(crate) tenant: Option<String>,
    /// Whether the agent supports streaming.
    pub(crate) streams: bool,
    /// Whether the interface is one of A2A 0.3.
    pub(crate) is_old: bool,
}

/// Verified card.
#[derive(Clone, Debug)]
pub(crate) struct RemoteCard {
    /// Card as announced, under the name on the mesh.
    pub(crate) shown: AgentCard,
    pub(crate) endpoint: RemoteEndpoint,
    /// Digest of the announced card and its endpoint, which detects changes.
    pub(crate) digest: String,
}

/// Fetches and verifies the card.
pub(crate) async fn fetch_card(
    settings: &BridgeSettings,
    hosts: &OutsideHosts,
    credentials: &Credentials,
) -> Result<RemoteCard, BridgeError> {
    for place in settings.card_places() {
        let Some(body) = fetch_bytes(settings, place.url, hosts, credentials).await? else { continue };
        let raw: Value = read_unique(&body)
            .map_err(|error| bad_card(settings, &credentials.secrets().hide(&error.to_string())))?;
        let mut modern = modern_card(raw.clone());
        if place.agent.is_some_and(|agent| !has_interface_at(&modern, &agent)) {
            continue;
        }
        if let Some(keys) = &settings.card_keys {
            let untrusted = |reason| BridgeError::Untrusted { address: settings.shown_address(), reason };
            modern = modern_card(keys.signed_part(&raw).map_err(untrusted)?);
        }
        return read_card(settings, credentials.secrets().hide_in_value(&modern));
    }
    let (address, reason) = (settings.shown_address(), "status 404".to_owned());
    Err(BridgeError::Card { address, reason, may_pass: true })
}

/// Returns whether a card lists an interface at this address or below it.
fn has_interface_at(raw: &Value, agent: &Url) -> bool {
    let interfaces = raw.get("supportedInterfaces").and_then(Value::as_array);
    interfaces.into_iter().flatten().any(|interface| {
        let url = interface.get("url").and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
        url.is_some_and(|url| {
            let rest = url.path().strip_prefix(agent.path());
            url.origin() == agent.origin()
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    })
}

/// Fetches the bytes of a card, or `None` if there is none at the address. Follows a redirect to
/// another host without credentials, and to public addresses only.
async fn fetch_bytes(
    settings: &BridgeSettings,
    mut url: Url,
    hosts: &OutsideHosts,
    credentials: &Credentials,
) -> Result<Option<Vec<u8>>, BridgeError> {
    for _ in 0..=MAX_REDIRECTS {
        let is_named = settings.is_named(&url);
        let client = if is_named { hosts.named.client() } else { hosts.strangers.clone() };
        let authorization = if is_named { credentials.header(&client).await? } else { None };
        let mut headers = vec![("accept", "application/json"), ("a2a-version", "1.0")];
        headers.extend(authorization.as_ref().map(|(name, value)| (name.as_str(), value.as_str())));
        let request = WebRequest {
            method: WebMethod::Get,
            address: url.as_str(),
            headers: &headers,
            body: Vec::new(),
            timeout: FETCH_TIMEOUT,
        };
        let failed = |error: &dyn std::fmt::Display, may_pass| BridgeError::Card {
            address: settings.shown_address(),
            reason: quoted(&error.to_string()),
            may_pass,
        };
        let response = client.open(request).await.map_err(|failure| failed(&failure.error, true))?;
        match response.status() {
            200 => {
                let read = tokio::time::timeout(FETCH_TIMEOUT, response.body(MAX_CARD_BYTES)).await;
                let read = read.map_err(|_| failed(&"it did not arrive in time", true))?;
                return read.map(Some).map_err(|error| failed(&error, true));
            }
            404 => return Ok(None),
            301 | 302 | 303 | 307 | 308 => {
                let target = response.header("location").and_then(|target| url.join(target).ok());
                url = target.ok_or_else(|| failed(&"a redirect without a valid location", false))?;
            }
            status @ (401 | 403) => {
                credentials.forget_token().await;
                let reason =
                    format!("the card at {} requires others: status {status}", settings.shown_address());
                return Err(BridgeError::Credentials { reason });
            }
            status => {
                let may_pass = status == 429 || status >= 500;
                return Err(failed(&format!("status {status}"), may_pass));
            }
        }
    }
    Err(bad_card(settings, "too many redirects"))
}

fn bad_card(settings: &BridgeSettings, reason: &str) -> BridgeError {
    BridgeError::Card { address: settings.shown_address(), reason: quoted(reason), may_pass: false }
}

/// Verifies a card and selects the interface.
fn read_card(settings: &BridgeSettings, mut raw: Value) -> Result<RemoteCard, BridgeError> {
    let bad = |reason: &str| bad_card(settings, reason);
    let own_name = raw.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = settings.name.clone().unwrap_or_else(|| mesh_name(own_name));
    if name.is_empty() {
        return Err(bad("its name contains no valid character; set a name in a bridge file"));
    }
    let endpoint = choose_interface(settings, &raw)?;
    let Some(members) = raw.as_object_mut() else { return Err(bad("it is not an object")) };
    members.insert("name".to_owned(), json!(name));
    // Signatures cover the card under its own name, and the mesh has its own credentials.
    for gone in ["signatures", "securitySchemes", "securityRequirements", "security"] {
        members.shift_remove(gone);
    }
    let extensions = members.get_mut("capabilities").and_then(|it| it.get_mut("extensions"));
    if let Some(all) = extensions.and_then(Value::as_array_mut) {
        all.retain(|extension| extension.get("uri").and_then(Value::as_str) == Some(SCHEMAS));
    }
    if let Some(description) = &settings.description {
        members.insert("description".to_owned(), json!(description));
    }
    if let Some((listed, all)) = bound_skills(members) {
        tracing::warn!(agent = name, listed, all, "the card of an external agent has too many skills");
        let text = members.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{text} (Lists {listed} of the agent's {all} skills.)");
        members.insert("description".to_owned(), json!(text.trim_start()));
    }
    let bytes = serde_json::to_vec(&raw).map_err(|error| bad(&error.to_string()))?;
    if bytes.len() > LARGEST_CARD {
        return Err(bad(&format!("it has {} bytes without its drawings", bytes.len())));
    }
    let mut shown = card_rules::check(&Token::of(&name), &bytes).map_err(|error| bad(&error.to_string()))?;
    for skill in &mut shown.skills {
        skill.security_requirements = None;
    }
    let digest = sha256(format!("{endpoint:?} {}", String::from_utf8_lossy(&bytes)).as_bytes());
    Ok(RemoteCard { shown, endpoint, digest })
}

/// Keeps the first skills of a card, as many as a card of the mesh may have and hold, with their schemas.
/// Returns the number of kept skills and of all, or `None` if the card keeps them all.
fn bound_skills(card: &mut Map<String, Value>) -> Option<(usize, usize)> {
    let all = card.get("skills").and_then(Value::as_array)?.len();
    let mut kept = all;
    loop {
        let is_too_large = || serde_json::to_vec(card).map_or(usize::MAX, |bytes| bytes.len()) > LARGEST_CARD;
        if kept <= MOST_SKILLS && (kept == 0 || !is_too_large()) {
            return (kept < all).then_some((kept, all));
        }
        kept = if kept > MOST_SKILLS { MOST_SKILLS } else { kept - kept.div_ceil(8) };
        let skills = card.get_mut("skills").and_then(Value::as_array_mut)?;
        skills.truncate(kept);
        let ids: HashSet<String> = skills
            .iter()
            .filter_map(|skill| skill.get("id").and_then(Value::as_str).map(str::to_owned))
            .collect();
        let extensions = card.get_mut("capabilities").and_then(|it| it.get_mut("extensions"));
        for extension in extensions.and_then(Value::as_array_mut).into_iter().flatten() {
            let schemas = extension.pointer_mut("/params/skills").and_then(Value::as_object_mut);
            if let Some(schemas) = schemas {
                schemas.retain(|id, _| ids.contains(id));
            }
        }
    }
}

/// Converts a name from a card to a name of the mesh: letters, digits, `-` and `_`.
fn mesh_name(name: &str) -> String {
    let mut clean = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            clean.push(c);
        } else if !clean.ends_with('-') && !clean.is_empty() {
            clean.push('-');
        }
        if clean.len() == MAX_NAME {
            break;
        }
    }
    clean.trim_end_matches('-').to_owned()
}

fn choose_interface(settings: &BridgeSettings, raw: &Value) -> Result<RemoteEndpoint, BridgeError> {
    let interfaces = raw.get("supportedInterfaces").and_then(Value::as_array);
    let interfaces = interfaces.map(Vec::as_slice).unwrap_or_default();
    let streams = raw.pointer("/capabilities/streaming").and_then(Value::as_bool) == Some(true);
    let mut reasons = Vec::new();
    let mut of_old_version = None;
    for interface in interfaces.iter().take(card_rules::MOST_ENTRIES) {
        let text = |name: &str| interface.get(name).and_then(Value::as_str).unwrap_or_default();
        let (address, binding, version) = (text("url"), text("protocolBinding"), text("protocolVersion"));
        let binding = match binding {
            "JSONRPC" => RemoteBinding::JsonRpc,
            "HTTP+JSON" => RemoteBinding::HttpJson,
            other => {
                reasons.push(format!("{other} is not supported"));
                continue;
            }
        };
        if settings.transport.is_some_and(|wanted| wanted != binding) {
            reasons.push(format!("{binding:?} is not the transport in the bridge file"));
            continue;
        }
        let is_old = version.starts_with(OLD_VERSION_PREFIX);
        if !is_old && !version.starts_with(VERSION_PREFIX) {
            reasons.push(format!("version {version:?} is neither 1.0 nor 0.3"));
            continue;
        }
        if is_old && binding != RemoteBinding::JsonRpc {
            reasons.push(format!("{binding:?} of A2A 0.3 is not supported"));
            continue;
        }
        match Url::parse(address) {
            Ok(url) if settings.is_named(&url) => {
                let tenant = Some(text("tenant").to_owned()).filter(|tenant| !tenant.is_empty());
                let address = address.trim_end_matches('/').to_owned();
                let endpoint = RemoteEndpoint { address, binding, tenant, streams, is_old };
                if !is_old {
                    return Ok(endpoint);
                }
                of_old_version.get_or_insert(endpoint);
            }
            Ok(url) => {
                let host = url.origin().ascii_serialization();
                reasons
                    .push(format!("{host} is not the host of the card; add it to 'hosts' in a bridge file"));
            }
            Err(error) => reasons.push(format!("an address is not valid: {error}")),
        }
    }
    if let Some(endpoint) = of_old_version {
        return Ok(endpoint);
    }
    if reasons.is_empty() {
        reasons.push("the card lists no interface".to_owned());
    }
    Err(BridgeError::Interface { reason: quoted(&reasons.join("; ")) })
}

#[cfg(test)]
mod tests {
    use sinew_agents::{ReachableAddresses, WebClient};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::named_hosts::{IdentityFiles, NamedHosts};

    fn card(interfaces: &Value) -> Value {
        json!({
            "name": "My Agent", "description": "d\u{7}one", "version": "1", "supportedInterfaces": interfaces,
            "capabilities": {"streaming": true, "extensions": [{"uri": "https://x.example/big"}]},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["t"]}],
            "signatures": [{"protected": "a", "signature": "b"}],
            "securitySchemes": {"k": {"apiKeySecurityScheme": {"name": "x", "location": "header"}}},
        })
    }

    fn interface(url: &str, binding: &str, version: &str) -> Value {
        json!({"url": url, "protocolBinding": binding, "protocolVersion": version})
    }

    #[test]
    fn the_first_interface_on_a_named_host_is_taken() {
        let mut settings = BridgeSettings::of_address("https://a.example").unwrap();
        settings.hosts = vec!["https://b.example".to_owned()];
        let rpc = |url: &str| interface(url, "JSONRPC", "1.0");
        for (interfaces, expected) in [
            (json!([rpc("https://a.example/rpc/")]), Ok("https://a.example/rpc")),
            (
                json!([interface("https://a.example/g", "GRPC", "1.0"), rpc("https://b.example/r")]),
                Ok("https://b.example/r"),
            ),
            (json!([interface("https://a.example/r", "HTTP+JSON", "1.0")]), Ok("https://a.example/r")),
            (json!([interface("https://a.example/r", "JSONRPC", "0.3.0")]), Ok("https://a.example/r")),
            (
                json!([interface("https://a.example/old", "JSONRPC", "0.3"), rpc("https://a.example/r")]),
                Ok("https://a.example/r"),
            ),
            (
                json!([interface("https://a.example/r", "HTTP+JSON", "0.3")]),
                Err("of A2A 0.3 is not supported"),
            ),
            (json!([interface("https://a.example/r", "JSONRPC", "0.2")]), Err("is neither 1.0 nor 0.3")),
            (json!([rpc("https://c.example/r")]), Err("add it to 'hosts'")),
            (json!([rpc("http://169.254.169.254/latest")]), Err("add it to 'hosts'")),
            (json!([rpc("nonsense")]), Err("not valid")),
            (json!([]), Err("lists no interface")),
            (json!("x"), Err("lists no interface")),
        ] {
            let read = read_card(&settings, card(&interfaces));
            match (read, expected) {
                (Ok(card), Ok(expected)) => assert_eq!(card.endpoint.address, expected, "{interfaces}"),
                (Err(error), Err(expected)) => {
                    assert_eq!(error.code(), "SINEW-9033", "{interfaces}");
                    assert!(error.to_string().contains(expected), "{interfaces}: {error}");
                }
                (read, _) => panic!("{interfaces}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_card_of_the_origin_must_name_the_agent() {
        let agent = Url::parse("https://a.example/x").unwrap();
        for (url, expected) in [
            ("https://a.example/x", true),
            ("https://a.example/x/rpc", true),
            ("https://a.example/xy", false),
            ("https://a.example/", false),
            ("https://b.example/x", false),
        ] {
            let raw = card(&json!([interface(url, "JSONRPC", "1.0")]));
            assert_eq!(has_interface_at(&raw, &agent), expected, "{url}");
        }
    }

    #[test]
    fn the_shown_card_has_a_name_of_the_mesh_and_no_rights_of_its_own() {
        let settings = BridgeSettings::of_address("https://a.example").unwrap();
        let shown = read_card(&settings, card(&json!([interface("https://a.example/r", "JSONRPC", "1.0")])))
            .unwrap()
            .shown;
        assert_eq!((shown.name.as_str(), shown.description.contains('\u{7}')), ("My-Agent", false));
        assert!(shown.signatures.is_none() && shown.security_schemes.is_none());
        assert_eq!(shown.capabilities.extensions.map(|all| all.len()), Some(0));
    }

    #[test]
    fn a_card_with_many_skills_is_bounded_and_says_so() {
        let settings = BridgeSettings::of_address("https://a.example").unwrap();
        let shown = |count: usize, bytes: usize| {
            let mut raw = card(&json!([interface("https://a.example/r", "JSONRPC", "1.0")]));
            let skill = |at| json!({"id": format!("s{at}"), "name": "s", "description": "d".repeat(bytes), "tags": ["t"]});
            raw["skills"] = (0..count).map(skill).collect();
            let schemas: Map<String, Value> =
                (0..count).map(|at| (format!("s{at}"), json!({"inputSchema": {"type": "object"}}))).collect();
            raw["capabilities"]["extensions"] = json!([{"uri": SCHEMAS, "params": {"skills": schemas}}]);
            read_card(&settings, raw).unwrap().shown
        };
        let schemas = |card: &AgentCard| {
            sinew_protocol::card::extension_params(card, SCHEMAS).unwrap()["skills"]
                .as_object()
                .unwrap()
                .len()
        };
        let whole = shown(100, 10);
        assert_eq!((whole.skills.len(), whole.description.as_str()), (100, "done"));
        let many = shown(312, 10);
        assert_eq!((many.skills.len(), schemas(&many)), (100, 100));
        assert_eq!(
            (many.skills[99].id.as_str(), many.description.as_str()),
            ("s99", "done (Lists 100 of the agent's 312 skills.)")
        );
        let large = shown(60, 4_000);
        assert!((10..20).contains(&large.skills.len()), "{}", large.skills.len());
        assert_eq!(schemas(&large), large.skills.len());
        assert!(large.description.contains("of the agent's 60 skills"), "{}", large.description);
    }

    /// Responds to one request, and returns its head.
    async fn answer_one(listener: TcpListener, answer: String) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    }

    #[tokio::test]
    async fn a_public_host_that_was_not_named_is_asked_without_credentials() {
        let (named, stranger) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let (named_at, stranger_at) = (named.local_addr().unwrap(), stranger.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "s3cret").unwrap();
        let file = folder.path().join("outside.bridge.yaml");
        let text = format!(
            "name: outside\ncard: http://{named_at}/card\ncredentials: {{api_key: {{header: X-Key, value: {{file: key}}}}}}\n"
        );
        std::fs::write(&file, text).unwrap();
        let settings = BridgeSettings::load(&file).unwrap();
        // The redirect target is on this machine here, so its client may access it.
        let own = NamedHosts::open(IdentityFiles::default()).unwrap();
        let strangers = WebClient::new(ReachableAddresses::All).unwrap();
        let hosts = OutsideHosts { named: own, strangers };
        let moved = format!(
            "HTTP/1.1 302 Found\r\nlocation: http://{stranger_at}/card\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let card = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".to_owned();
        let credentials = Credentials::new(settings.credentials.clone());
        let (body, first, second) = tokio::join!(
            fetch_bytes(&settings, settings.card.clone(), &hosts, &credentials),
            answer_one(named, moved),
            answer_one(stranger, card)
        );
        assert_eq!(body.unwrap().unwrap(), b"{}");
        assert!(first.contains("x-key: s3cret"), "{first}");
        assert!(second.starts_with("get /card ") && !second.contains("s3cret"), "{second}");
    }
}
