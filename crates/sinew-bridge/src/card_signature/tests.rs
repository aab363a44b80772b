use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::*;

fn signed(card: &Value, header: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> Value {
    let protected = BASE64URL_NOPAD.encode(header.to_string().as_bytes());
    let payload = BASE64URL_NOPAD.encode(canonical_json(card).as_bytes());
    let signature = BASE64URL_NOPAD.encode(&sign(format!("{protected}.{payload}").as_bytes()));
    let mut card = card.clone();
    card["signatures"] = json!([{"protected": protected, "signature": signature}]);
    card
}

#[test]
fn cards_are_trusted_by_pinned_keys_only() {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
    let ed = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
    let other =
        Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
    let point = ec.public_key().as_ref();
    let text = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let set = json!({"keys": [
        {"kty": "EC", "crv": "P-256", "kid": "ec", "x": text(&point[1..33]), "y": text(&point[33..])},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": text(ed.public_key().as_ref())},
    ]});
    let keys = CardKeys::read(&set.to_string()).unwrap();
    let card = json!({"name": "a", "description": "", "skills": [], "version": "1"});
    let with_ec = |card: &Value, header: &Value| {
        signed(card, header, |bytes| ec.sign(&random, bytes).unwrap().as_ref().to_vec())
    };
    let with_ed =
        |card: &Value, header: &Value| signed(card, header, |bytes| ed.sign(bytes).as_ref().to_vec());
    let check = |what: &str, card: &Value, expected: bool| {
        assert_eq!(keys.signed_part(card).is_ok(), expected, "{what}: {:?}", keys.signed_part(card));
    };
    check("by P-256", &with_ec(&card, &json!({"alg": "ES256", "kid": "ec"})), true);
    check("by Ed25519, without an id", &with_ed(&card, &json!({"alg": "EdDSA"})), true);
    let mut sparse = with_ed(&card, &json!({"alg": "EdDSA", "kid": "ed"}));
    sparse["iconUrl"] = json!("");
    check("with a default that the signer left out", &sparse, true);
    check("not signed", &card, false);
    check("algorithm none", &with_ed(&card, &json!({"alg": "none"})), false);
    check("algorithm HS256", &with_ed(&card, &json!({"alg": "HS256", "kid": "ec"})), false);
    check("id of another key", &with_ed(&card, &json!({"alg": "EdDSA", "kid": "ec"})), false);
    check("algorithm of another key", &with_ed(&card, &json!({"alg": "ES256", "kid": "ed"})), false);
    check(
        "unknown extension",
        &with_ed(&card, &json!({"alg": "EdDSA", "crit": ["b64"], "b64": false})),
        false,
    );
    let jku = json!({"alg": "EdDSA", "kid": "ed", "jku": "https://evil.example/keys"});
    check("another key behind jku", &signed(&card, &jku, |bytes| other.sign(bytes).as_ref().to_vec()), false);
    // A member for clients of A2A 0.3 that is not signed has no effect.
    let mut with_address = with_ed(&card, &json!({"alg": "EdDSA"}));
    with_address["url"] = json!("https://evil.example");
    assert_eq!(keys.signed_part(&with_address), Ok(card.clone()));
    for (member, value) in
        [("name", json!("b")), ("description", json!("x")), ("iconUrl", json!("https://evil.example"))]
    {
        let mut changed = with_ed(&card, &json!({"alg": "EdDSA"}));
        changed[member] = value;
        check(member, &changed, false);
    }
    let mut first_is_bad = with_ed(&card, &json!({"alg": "EdDSA"}));
    let good = first_is_bad["signatures"][0].clone();
    first_is_bad["signatures"] = json!([{"protected": "x", "signature": "y"}, good]);
    check("one of two", &first_is_bad, true);
}

#[test]
fn key_sets_are_read_or_refused() {
    for text in [
        "",
        "{}",
        r#"{"keys": []}"#,
        r#"{"keys": [{"kty": "RSA"}]}"#,
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}"#,
    ] {
        assert!(CardKeys::read(text).is_err(), "{text}");
    }
}
