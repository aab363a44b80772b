//! Signatures of agent cards: JWS over the canonical JSON of the card (A2A, section 8.4).

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value, json};
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::canonical_json::canonical_json;

use crate::a2a_schema::without_defaults;
use crate::gateway_signer::GatewaySigner;

/// Required members of a card, which are kept even if they are empty.
const REQUIRED_OF_CARD: [&str; 8] = [
    "name",
    "description",
    "supportedInterfaces",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
];
/// Required members of a skill.
const REQUIRED_OF_SKILL: [&str; 4] = ["id", "name", "description", "tags"];

/// Signs a card with the key of the gateways, which `base` serves, and replaces existing
/// signatures.
///
/// The official SDKs omit all empty members; the specification omits only those that are not
/// required. If the two forms differ, the card has a signature for each: clients accept a card if
/// one signature is valid.
pub(crate) fn sign_card(card: &mut AgentCard, signer: &GatewaySigner, base: &str) {
    card.signatures = None;
    let Some(specified) = specified_form(card) else { return };
    let compact = without_empty(&specified).unwrap_or_default();
    let protected = json!({
        "alg": "EdDSA",
        "jku": format!("{base}/.well-known/jwks.json"),
        "kid": signer.key_id(),
        "typ": "JOSE",
    });
    let protected = BASE64URL_NOPAD.encode(canonical_json(&protected).as_bytes());
    let mut forms = vec![canonical_json(&specified)];
    forms.extend(Some(canonical_json(&compact)).filter(|compact| *compact != forms[0]));
    let signature = |payload: &String| {
        let payload = BASE64URL_NOPAD.encode(payload.as_bytes());
        let signature = signer.sign(format!("{protected}.{payload}").as_bytes());
        json!({"protected": &protected, "signature": BASE64URL_NOPAD.encode(&signature)})
    };
    // The JSON has the shape that the types deserialize.
    card.signatures = serde_json::from_value(forms.iter().map(signature).collect()).ok();
}

/// Returns the card without optional members that have their default value, or `None` if the value
/// is not a card.
fn specified_form(card: &AgentCard) -> Option<Value> {
    let given = serde_json::to_value(card).ok()?;
    let mut form = without_defaults("lf.a2a.v1.AgentCard", &given)
        .inspect_err(|reason| tracing::warn!(reason, "cannot sign a card"))
        .ok()?;
    restore(form.as_object_mut()?, &given, &REQUIRED_OF_CARD);
    let skills = form.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten();
    for (skill, given) in skills.zip(given["skills"].as_array()?) {
        restore(skill.as_object_mut()?, given, &REQUIRED_OF_SKILL);
    }
    Some(form)
}

fn restore(form: &mut Map<String, Value>, given: &Value, required: &[&str]) {
    for name in required {
        if let Some(member) = given.get(name).filter(|_| !form.contains_key(*name)) {
            form.insert((*name).to_owned(), member.clone());
        }
    }
}

/// Returns a value without empty strings, arrays and objects, or `None` if nothing remains.
fn without_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(without_empty).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Map<String, Value> =
                members.filter_map(|(name, member)| Some((name.clone(), without_empty(member)?))).collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(skills: &Value, params: &Value) -> AgentCard {
        serde_json::from_value(json!({
            "name": "a", "description": "", "version": "1", "skills": skills,
            "supportedInterfaces": [{"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": false, "extensions": [{"uri": "x", "required": false, "params": params}]},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        }))
        .unwrap()
    }

    #[test]
    fn required_members_stay_and_defaults_go() {
        let form = specified_form(&card(&json!([]), &json!({"n": 5, "empty": {}}))).unwrap();
        let capabilities =
            json!({"streaming": false, "extensions": [{"uri": "x", "params": {"n": 5, "empty": {}}}]});
        assert_eq!(form["capabilities"], capabilities);
        assert_eq!((&form["skills"], &form["description"]), (&json!([]), &json!("")));
        let compact = without_empty(&form).unwrap();
        assert_eq!(compact["capabilities"]["extensions"], json!([{"uri": "x", "params": {"n": 5}}]));
        assert_eq!((compact.get("skills"), compact.get("description")), (None, None));
        let skill = json!([{"id": "s", "name": "s", "description": "d", "tags": []}]);
        let form = specified_form(&card(&skill, &json!({}))).unwrap();
        assert_eq!(form["skills"], skill);
    }
}
