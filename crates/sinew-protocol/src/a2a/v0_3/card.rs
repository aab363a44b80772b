//! Cards of A2A 0.3 (specification 0.3.0, section 5.5).

use serde_json::{Map, Value, json};

use super::OLD_VERSION;

/// Version on cards, with its patch number.
const CARD_VERSION: &str = "0.3.0";
/// Binding of both versions that is served at the same address.
const JSON_RPC: &str = "JSONRPC";
/// Members of a card of 0.3 that a card of 1.0 does not have.
const OLD_MEMBERS: [&str; 6] = [
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
    "security",
];
/// Types of security schemes in A2A 1.0 and 0.3.
const SCHEMES: [(&str, &str); 5] = [
    ("apiKeySecurityScheme", "apiKey"),
    ("httpAuthSecurityScheme", "http"),
    ("oauth2SecurityScheme", "oauth2"),
    ("openIdConnectSecurityScheme", "openIdConnect"),
    ("mtlsSecurityScheme", "mutualTLS"),
];

/// Adds the members of A2A 0.3 to a card of 1.0, so that clients of both versions read it. The
/// address is that of the JSON-RPC interface; without one, the card stays as it is.
pub fn add_old_members(card: &mut Value) {
    let interfaces = card.get("supportedInterfaces").and_then(Value::as_array);
    let is_json_rpc = |interface: &&Value| interface["protocolBinding"] == JSON_RPC;
    let url = interfaces.into_iter().flatten().find(is_json_rpc).map(|interface| interface["url"].clone());
    let (Some(url), Some(members)) = (url, card.as_object_mut()) else { return };
    let is_extended =
        members.get("capabilities").and_then(|it| it.get("extendedAgentCard")) == Some(&json!(true));
    if let Some(schemes) = members.get_mut("securitySchemes").and_then(Value::as_object_mut) {
        schemes.values_mut().for_each(add_old_scheme);
    }
    if let Some(security) = old_security(members) {
        members.insert("security".to_owned(), security);
    }
    for skill in members.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(skill) = skill.as_object_mut() else { continue };
        if let Some(security) = old_security(skill) {
            skill.insert("security".to_owned(), security);
        }
    }
    let interfaces = json!([{ "url": &url, "transport": JSON_RPC }]);
    members.extend([
        ("protocolVersion".to_owned(), json!(CARD_VERSION)),
        ("url".to_owned(), url),
        ("preferredTransport".to_owned(), json!(JSON_RPC)),
        ("additionalInterfaces".to_owned(), interfaces),
        ("supportsAuthenticatedExtendedCard".to_owned(), json!(is_extended)),
    ]);
}

/// Removes what [`add_old_members`] adds.
pub fn remove_old_members(card: &mut Value) {
    let Some(members) = card.as_object_mut() else { return };
    for name in OLD_MEMBERS {
        members.shift_remove(name);
    }
    let schemes = members.get_mut("securitySchemes").and_then(Value::as_object_mut);
    for scheme in schemes.into_iter().flat_map(|schemes| schemes.values_mut()) {
        if let Some(members) = scheme.as_object_mut() {
            members.retain(|name, _| SCHEMES.iter().any(|(modern, _)| modern == name));
        }
    }
    for skill in members.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(skill) = skill.as_object_mut() {
            skill.shift_remove("security");
        }
    }
}

/// Adds the type and the members of a scheme next to the member that contains them in A2A 1.0.
fn add_old_scheme(scheme: &mut Value) {
    let Some(members) = scheme.as_object_mut() else { return };
    for (modern, old) in SCHEMES {
        let Some(Value::Object(mut inner)) = members.get(modern).cloned() else { continue };
        if let Some(location) = inner.shift_remove("location") {
            inner.insert("in".to_owned(), location);
        }
        members.insert("type".to_owned(), json!(old));
        members.extend(inner);
    }
}

/// Returns the alternatives of `securityRequirements` as 0.3 lists them: scopes by scheme.
fn old_security(members: &Map<String, Value>) -> Option<Value> {
    let requirements = members.get("securityRequirements")?.as_array()?;
    let scopes = |(name, scopes): (&String, &Value)| {
        (name.clone(), scopes.get("list").cloned().unwrap_or_else(|| json!([])))
    };
    let old = requirements.iter().filter_map(|one| one.get("schemes")?.as_object());
    Some(old.map(|schemes| Value::Object(schemes.iter().map(scopes).collect())).collect())
}

/// Translates a card of A2A 0.3 to 1.0: its interfaces and capabilities. From a card that already
/// lists interfaces, the members of 0.3 are removed. Security schemes are removed, because their forms
/// differ.
pub fn modern_card(mut card: Value) -> Value {
    let lists = card.get("supportedInterfaces").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    if lists {
        remove_old_members(&mut card);
        return card;
    }
    let Some(members) = card.as_object_mut() else { return card };
    let Some(url) = members.shift_remove("url") else { return card };
    let mut take = |name: &str| members.shift_remove(name).filter(|value| !value.is_null());
    let version = take("protocolVersion").unwrap_or_else(|| json!(OLD_VERSION));
    let transport = take("preferredTransport").unwrap_or_else(|| json!(JSON_RPC));
    let others = take("additionalInterfaces");
    let is_extended = take("supportsAuthenticatedExtendedCard");
    for gone in ["securitySchemes", "security"] {
        members.shift_remove(gone);
    }
    let interface = |url: &Value, transport: &Value| json!({ "url": url, "protocolBinding": transport, "protocolVersion": &version });
    let others = others.as_ref().and_then(Value::as_array).into_iter().flatten();
    let mut interfaces = vec![interface(&url, &transport)];
    interfaces.extend(others.map(|other| interface(&other["url"], &other["transport"])));
    let mut seen = Vec::new();
    interfaces.retain(|one| {
        !seen.contains(one) && {
            seen.push(one.clone());
            true
        }
    });
    members.insert("supportedInterfaces".to_owned(), Value::Array(interfaces));
    if let (Some(is_extended), Some(capabilities)) =
        (is_extended, members.get_mut("capabilities").and_then(Value::as_object_mut))
    {
        capabilities.insert("extendedAgentCard".to_owned(), is_extended);
    }
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_the_members_of_both_versions() {
        let mut card = json!({
            "name": "a", "description": "d", "version": "1",
            "supportedInterfaces": [
                {"url": "https://x.example/a", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
                {"url": "https://x.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": true, "extendedAgentCard": true},
            "securitySchemes": {
                "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
                "key": {"apiKeySecurityScheme": {"name": "X-Key", "location": "header"}}},
            "securityRequirements": [{"schemes": {"bearer": {"list": []}}}, {"schemes": {"key": {"list": ["s"]}}}],
            "skills": [{"id": "s"}],
        });
        let modern = card.clone();
        add_old_members(&mut card);
        for (member, expected) in [
            ("/url", json!("https://x.example/rpc")),
            ("/preferredTransport", json!("JSONRPC")),
            ("/additionalInterfaces", json!([{"url": "https://x.example/rpc", "transport": "JSONRPC"}])),
            ("/protocolVersion", json!("0.3.0")),
            ("/supportsAuthenticatedExtendedCard", json!(true)),
            ("/securitySchemes/bearer/type", json!("http")),
            ("/securitySchemes/bearer/scheme", json!("Bearer")),
            ("/securitySchemes/key/in", json!("header")),
            ("/security", json!([{"bearer": []}, {"key": ["s"]}])),
        ] {
            assert_eq!(card.pointer(member), Some(&expected), "{member}");
        }
        for member in ["supportedInterfaces", "capabilities", "skills", "securityRequirements"] {
            assert_eq!(card[member], modern[member], "{member}");
        }
        remove_old_members(&mut card);
        assert_eq!(card, modern);
        let mut without = json!({"name": "a", "supportedInterfaces": []});
        add_old_members(&mut without);
        assert_eq!(without, json!({"name": "a", "supportedInterfaces": []}));
    }

    #[test]
    fn an_old_card_lists_its_interfaces() {
        let card = json!({
            "name": "a", "url": "https://x.example/rpc", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0",
            "additionalInterfaces": [
                {"url": "https://x.example/rpc", "transport": "JSONRPC"},
                {"url": "https://x.example/rest", "transport": "HTTP+JSON"}],
            "capabilities": {}, "supportsAuthenticatedExtendedCard": false, "security": [], "securitySchemes": {},
        });
        let interface = |url: &str, binding: &str| json!({"url": url, "protocolBinding": binding, "protocolVersion": "0.3.0"});
        let expected = json!({
            "name": "a", "capabilities": {"extendedAgentCard": false},
            "supportedInterfaces": [
                interface("https://x.example/rpc", "JSONRPC"), interface("https://x.example/rest", "HTTP+JSON")],
        });
        assert_eq!(modern_card(card), expected);
        let both = json!({"url": "u", "supportedInterfaces": [{"url": "v"}]});
        assert_eq!(modern_card(both), json!({"supportedInterfaces": [{"url": "v"}]}));
        assert_eq!(modern_card(json!(7)), json!(7));
    }
}
