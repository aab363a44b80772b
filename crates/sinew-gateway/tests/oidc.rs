//! Tokens of an OpenID provider: the right ones open, all others are refused, and keys may change.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use data_encoding::BASE64URL_NOPAD;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use reqwest::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use sinew_gateway::{ConsoleMode, OidcClient, OidcOptions};
use sinew_protocol::access::AccessRole;
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};
use tokio::sync::watch;

use crate::support::{EventSource, GatewayWorld, PATIENCE, SINGLE, now};

/// A provider that publishes the keys of a list.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    keys: Arc<Mutex<Vec<Value>>>,
    /// Whether connections are taken and not answered meanwhile.
    hangs: watch::Sender<bool>,
    /// Requests that came, for whatever it publishes.
    asked: watch::Sender<usize>,
}

impl Provider {
    async fn start() -> Self {
        Self::start_with("127.0.0.1", Router::new()).await
    }

    /// Starts a provider under this name of this machine, with more routes, all of which begin with `/realm`.
    pub(crate) async fn start_with(host: &str, more: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{host}:{}/realm", listener.local_addr().unwrap().port());
        let keys = Arc::new(Mutex::new(Vec::new()));
        let published = Arc::clone(&keys);
        let description = json!({
            "issuer": issuer, "jwks_uri": format!("{issuer}/keys"),
            "authorization_endpoint": format!("{issuer}/authorize"), "token_endpoint": format!("{issuer}/token"),
        });
        let discovery = description.to_string();
        let (hangs, asked) = (watch::Sender::new(false), watch::Sender::new(0));
        let (is_hanging, told) = (hangs.clone(), asked.clone());
        let hang = from_fn(move |request: Request, next: Next| {
            told.send_modify(|count| *count += 1);
            let mut is_hanging = is_hanging.subscribe();
            async move {
                let _ = is_hanging.wait_for(|hangs| !hangs).await;
                next.run(request).await
            }
        });
        let router =
            more.route("/realm/.well-known/openid-configuration", get(async move || discovery)).route(
                "/realm/keys",
                get(async move || json!({"keys": published.lock().unwrap().clone()}).to_string()),
            );
        tokio::spawn(async move { axum::serve(listener, router.layer(hang)).await.unwrap() });
        Self { issuer, keys, hangs, asked }
    }

    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        *self.keys.lock().unwrap() = keys.iter().map(|key| key.public.clone()).collect();
    }

    /// Claims that open as a client.
    pub(crate) fn claims(&self) -> Value {
        let seconds = now() / 1000;
        json!({
            "iss": self.issuer, "aud": ["other", "sinew"], "sub": "ann@example.com",
            "exp": seconds + 300, "nbf": seconds - 5, "scope": "openid sinew:client",
        })
    }
}

enum Signer {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key of a provider, with its public part as it is published.
pub(crate) struct SigningKey {
    kid: &'static str,
    signer: Signer,
    public: Value,
}

impl SigningKey {
    fn p256(kid: &'static str) -> Self {
        let chance = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &chance).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &chance).unwrap();
        let point = &pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(32);
        let public = json!({
            "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256",
            "x": BASE64URL_NOPAD.encode(x), "y": BASE64URL_NOPAD.encode(y),
        });
        Self { kid, signer: Signer::P256(pair), public }
    }

    pub(crate) fn ed25519(kid: &'static str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let x = BASE64URL_NOPAD.encode(pair.public_key().as_ref());
        let public = json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x});
        Self { kid, signer: Signer::Ed25519(pair), public }
    }

    fn algorithm(&self) -> &'static str {
        match self.signer {
            Signer::P256(_) => "ES256",
            Signer::Ed25519(_) => "EdDSA",
        }
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let told = format!("{}.{}", encode(header), encode(claims));
        let signature = match &self.signer {
            Signer::P256(pair) => pair.sign(&SystemRandom::new(), told.as_bytes()).unwrap().as_ref().to_vec(),
            Signer::Ed25519(pair) => pair.sign(told.as_bytes()).as_ref().to_vec(),
        };
        format!("{told}.{}", BASE64URL_NOPAD.encode(&signature))
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": self.algorithm(), "kid": self.kid, "typ": "JWT"}), claims)
    }
}

async fn world_of(provider: &Provider) -> GatewayWorld {
    let oidc = OidcOptions::new(&provider.issuer, "sinew");
    GatewayWorld::with(&[("single", SINGLE)], |options| {
        (options.access.is_required, options.access.oidc) = (true, vec![oidc]);
    })
    .await
}

async fn ask(world: &GatewayWorld, token: &str) -> (u16, Value) {
    let answer = world.request(Method::GET, "/api/v1/workflows").bearer_auth(token).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn tokens_open_if_everything_about_them_is_right() {
    let provider = Provider::start().await;
    let (curve, edwards, stranger) = (SigningKey::p256("a"), SigningKey::ed25519("b"), SigningKey::p256("a"));
    provider.publish(&[&curve, &edwards]);
    let world = world_of(&provider).await;
    let claims = provider.claims();
    let with = |changes: Value| {
        let mut claims = claims.clone();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    };
    for key in [&curve, &edwards] {
        let (status, body) = ask(&world, &key.token(&claims)).await;
        assert_eq!(status, 200, "{}: {body}", key.algorithm());
    }
    let seconds = now() / 1000;
    let skewed = curve.token(&with(json!({"exp": seconds - 30, "nbf": seconds - 60})));
    assert_eq!(ask(&world, &skewed).await.0, 200, "clocks differ by less than a minute");

    let good = curve.token(&claims);
    let (head, signature) = good.rsplit_once('.').unwrap();
    let public = curve.public["x"].as_str().unwrap().as_bytes();
    let shared = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public);
    let told = format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(br#"{"alg":"HS256","kid":"a"}"#),
        BASE64URL_NOPAD.encode(claims.to_string().as_bytes())
    );
    let confused =
        format!("{told}.{}", BASE64URL_NOPAD.encode(ring::hmac::sign(&shared, told.as_bytes()).as_ref()));
    let none = format!(
        "{}.{}.",
        BASE64URL_NOPAD.encode(br#"{"alg":"none","kid":"a"}"#),
        head.split_once('.').unwrap().1
    );
    let other_kid = curve.sign(&json!({"alg": "ES256", "kid": "c"}), &claims);
    let swapped_kid = curve.sign(&json!({"alg": "ES256", "kid": "b"}), &claims);
    let no_kid = curve.sign(&json!({"alg": "ES256"}), &claims);
    let own_key = stranger.sign(
        &json!({"alg": "ES256", "kid": "x", "jwk": stranger.public, "jku": "http://127.0.0.1:1/"}),
        &claims,
    );
    let cases: Vec<(&str, String)> = vec![
        ("expired", curve.token(&with(json!({"exp": seconds - 120})))),
        ("not yet valid", curve.token(&with(json!({"nbf": seconds + 120})))),
        ("no end", curve.token(&with(json!({"exp": null})))),
        ("an end that is a text", curve.token(&with(json!({"exp": "never"})))),
        ("a begin that is a text", curve.token(&with(json!({"nbf": "always"})))),
        ("another audience", curve.token(&with(json!({"aud": "other"})))),
        ("no audience", curve.token(&with(json!({"aud": null})))),
        ("another issuer", curve.token(&with(json!({"iss": "http://127.0.0.1:1/realm"})))),
        ("a list with the issuer", curve.token(&with(json!({"iss": [claims["iss"]]})))),
        (
            "an extension that must be understood",
            curve.sign(&json!({"alg": "ES256", "kid": "a", "crit": ["x"], "x": 1}), &claims),
        ),
        ("no caller", curve.token(&with(json!({"sub": null})))),
        ("a caller that is a number", curve.token(&with(json!({"sub": 7})))),
        ("a scope that is a number", curve.token(&with(json!({"scope": 7})))),
        ("signed by somebody else", stranger.token(&claims)),
        ("a key of its own", own_key),
        ("no algorithm", none),
        ("a shared secret", confused),
        ("an unknown key", other_kid),
        ("the key of another", swapped_kid),
        ("no key", no_kid),
        ("no signature", format!("{head}.")),
        ("half a signature", format!("{head}.{}", &signature[..signature.len() / 2])),
        ("another signature", format!("{head}.{}", "A".repeat(signature.len()))),
        ("two parts", head.to_owned()),
        ("not a token", "nothing".to_owned()),
        ("empty parts", "..".to_owned()),
        ("too long", format!("{head}.{}", "A".repeat(20_000))),
    ];
    for (what, token) in &cases {
        let (status, body) = ask(&world, token).await;
        assert_eq!((status, &body["code"]), (401, &json!("SINEW-9015")), "{what}: {body}");
        assert!(!body.to_string().contains(token.as_str()), "{what}");
    }
    // A token that is good and gives no role is no reason to sign in again (RFC 6750, 3.1).
    for scope in [json!("openid profile"), json!(null)] {
        let (status, body) = ask(&world, &curve.token(&with(json!({"scope": scope})))).await;
        assert_eq!((status, &body["code"]), (403, &json!("SINEW-9016")), "{scope}: {body}");
    }
    assert_eq!(ask(&world, &good).await.0, 200, "the right one still opens");
    world.end().await;
}

#[tokio::test]
async fn scopes_limit_and_the_caller_is_recorded() {
    let provider = Provider::start().await;
    let key = SigningKey::ed25519("a");
    provider.publish(&[&key]);
    let world = world_of(&provider).await;
    let start = async |scope: &str| {
        let mut claims = provider.claims();
        claims["scope"] = json!(scope);
        let body = json!({"workflow": "single", "input": {"value": "v"}});
        let request = world.request(Method::POST, "/api/v1/executions").bearer_auth(key.token(&claims));
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    assert_eq!(start("sinew:operator").await.0, 403);
    assert_eq!(start("sinew:client:other-*").await.0, 404);
    let (status, started) = start("sinew:client:sing*").await;
    assert_eq!(status, 201, "{started}");
    let path = format!("/api/v1/executions/{}/record", started["execution"].as_str().unwrap());
    let record = world.request(Method::GET, &path).bearer_auth(key.token(&provider.claims()));
    let record = record.send().await.unwrap().text().await.unwrap();
    assert!(record.contains("\"oidc-ann@example.com\""), "{record}");
    world.end().await;
}

#[tokio::test]
async fn keys_of_a_provider_may_change_and_the_provider_may_go() {
    let provider = Provider::start().await;
    let (old, new) = (SigningKey::p256("old"), SigningKey::p256("new"));
    provider.publish(&[&old]);
    let world = world_of(&provider).await;
    let claims = provider.claims();
    assert_eq!(ask(&world, &old.token(&claims)).await.0, 200);
    provider.publish(&[&new]);
    // Keys are fetched again for an unknown one, though not at every request.
    let rotated = async { while ask(&world, &new.token(&claims)).await.0 != 200 {} };
    tokio::time::timeout(PATIENCE, rotated).await.unwrap();
    assert_eq!(ask(&world, &old.token(&claims)).await.0, 401, "a key that is not published any more");
    provider.publish(&[]);
    assert_eq!(ask(&world, &new.token(&claims)).await.0, 200, "keys are kept for a while");
    world.end().await;
}

#[tokio::test]
async fn a_provider_that_hangs_stops_nobody_whose_key_is_known() {
    let provider = Provider::start().await;
    let (known, unknown) = (SigningKey::p256("known"), SigningKey::p256("unknown"));
    provider.publish(&[&known]);
    let provided = |answer_timeout| {
        let mut oidc = OidcOptions::new(&provider.issuer, "sinew");
        // Keys are always old, so each token asks for newer ones.
        (oidc.max_key_age, oidc.answer_timeout) = (Duration::ZERO, answer_timeout);
        oidc.client = Some(OidcClient::new("console"));
        oidc
    };
    let patient = provided(10 * PATIENCE);
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        (options.access.is_required, options.access.oidc) = (true, vec![patient]);
        options.console = Some(ConsoleMode::Full);
    })
    .await;
    let (good, other) = (known.token(&provider.claims()), unknown.token(&provider.claims()));
    assert_eq!(ask(&world, &good).await.0, 200);
    provider.hangs.send_replace(true);
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE);
    let http = http.build().unwrap();
    let get = async |address: String, token: &str| {
        let answer = http.get(address).bearer_auth(token).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let sign_in = |base: &str| format!("{base}/console/sign-in/openid");
    for _ in 0..3 {
        let (status, body) = get(format!("{}/api/v1/workflows", world.base), &good).await;
        assert_eq!(status, 200, "{body}");
    }
    let begun = http.get(sign_in(&world.base)).send().await.unwrap();
    assert_eq!(begun.status(), 303, "the page of the provider is known");

    // A flood of unknown keys does not pile up behind the provider: some wait, others are refused at once.
    let flood = (0..80).map(|_| get(format!("{}/api/v1/workflows", world.base), &other));
    let mut flood: FuturesUnordered<_> = flood.collect();
    for _ in 0..16 {
        assert_eq!(flood.next().await.unwrap().0, 401);
    }
    drop(flood);

    // A gateway that has heard nothing of the provider yet gives up in time.
    let hasty = provided(Duration::from_millis(50));
    let other_gateway = world
        .gateway(|options| {
            (options.access.is_required, options.access.oidc) = (true, vec![hasty]);
            options.console = Some(ConsoleMode::Full);
        })
        .await;
    let base = format!("http://{}", other_gateway.address());
    for token in [&good, &other] {
        let (status, body) = get(format!("{base}/api/v1/workflows"), token).await;
        assert_eq!(status, 401, "{body}");
        assert!(body.contains("cannot read the keys of the provider"), "{body}");
    }
    let refused = http.get(sign_in(&base)).send().await.unwrap();
    let (status, page) = (refused.status().as_u16(), refused.text().await.unwrap());
    assert!((400..600).contains(&status), "{status}");
    assert!(page.contains("cannot read the keys of the provider"), "{page}");
    other_gateway.drain().await;
    world.end().await;
}

#[tokio::test]
async fn a_fetch_of_keys_goes_on_when_its_client_has_gone() {
    let provider = Provider::start().await;
    let (known, unknown) = (SigningKey::p256("known"), SigningKey::p256("unknown"));
    provider.publish(&[&known]);
    provider.hangs.send_replace(true);
    let mut oidc = OidcOptions::new(&provider.issuer, "sinew");
    oidc.answer_timeout = PATIENCE;
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        (options.access.is_required, options.access.oidc) = (true, vec![oidc]);
        options.limits.in_flight = 1;
    })
    .await;
    let token = unknown.token(&provider.claims());
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let request = client.get(format!("{}/api/v1/workflows", world.base)).bearer_auth(&token);
    let gone = tokio::spawn(request.send());
    tokio::time::timeout(PATIENCE, provider.asked.subscribe().wait_for(|count| *count > 0))
        .await
        .unwrap()
        .unwrap();
    gone.abort();
    // The only place is free once the gateway has noticed.
    let card = async || world.request(Method::GET, "/.well-known/agent-card.json").send().await.unwrap();
    let noticed = async { while card().await.status() == 503 {} };
    tokio::time::timeout(PATIENCE, noticed).await.unwrap();
    let next = ask(&world, &token);
    let release = async { provider.hangs.send_replace(false) };
    assert_eq!(tokio::join!(next, release).0.0, 401);
    // One description and one set of keys, though two clients came.
    assert_eq!(*provider.asked.borrow(), 2);
    assert_eq!(ask(&world, &known.token(&provider.claims())).await.0, 200);
    world.end().await;
}

#[tokio::test]
async fn streams_end_with_the_session_of_their_reader() {
    let provider = Provider::start().await;
    let world = world_of(&provider).await;
    let secret = Subject::Access { kind: AccessKind::Secret, id: Token::of("session") };
    let secret = world.mesh.records().access().get(&secret).await.unwrap().unwrap();
    let secret: Value = serde_json::from_slice(&secret.body).unwrap();
    let secret = data_encoding::HEXLOWER.decode(secret["secret"].as_str().unwrap().as_bytes()).unwrap();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
    let caller = json!({
        "issuer": provider.issuer, "caller": "oidc-ann", "role": AccessRole::Client, "patterns": ["*"],
    });
    // A session as a sign-in gives it, with less time left.
    let session = |until: u64| {
        let told = format!("oidc:{}.{until}", BASE64URL_NOPAD.encode(caller.to_string().as_bytes()));
        let tag = ring::hmac::sign(&secret, format!("sinew session {told}").as_bytes());
        format!("sinew-session={told}.{}", data_encoding::HEXLOWER.encode(tag.as_ref()))
    };
    let open = async |until: u64| {
        let request = world.request(Method::GET, "/api/v1/changes").header("cookie", session(until));
        request.send().await.unwrap()
    };
    assert_eq!(open(now()).await.status(), 401, "it is over");
    let stream = EventSource::of(open(now() + 5_000).await);
    // Without an end of its own the stream would outlast the patience of its reader.
    tokio::time::timeout(PATIENCE, stream.all()).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn clients_are_led_to_the_provider_of_their_tokens() {
    let provider = Provider::start().await;
    let key = SigningKey::ed25519("a");
    provider.publish(&[&key]);
    let world = world_of(&provider).await;
    let scopes = ["sinew:operator", "sinew:client", "sinew:admin"];
    for (resource, scopes) in [("", &scopes[..]), ("/mcp", &scopes[..2])] {
        let path = format!("/.well-known/oauth-protected-resource{resource}");
        let document: Value = world.request(Method::GET, &path).send().await.unwrap().json().await.unwrap();
        let expected = json!({
            "resource": format!("{}{resource}", world.base),
            "authorization_servers": [provider.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        });
        assert_eq!(document, expected);
    }
    let card: Value = world.document("/.well-known/agent-card.json").await;
    let needed: Vec<&Value> = card["securityRequirements"].as_array().unwrap().iter().collect();
    let openid = needed.iter().find_map(|one| one["schemes"].get("openid1")).unwrap();
    assert_eq!(openid["list"], json!(["sinew:client"]), "{needed:?}");
    let challenge = async |path: &str, token: Option<&str>| {
        let mut request = world.request(Method::POST, path).json(&json!({}));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        let told = answer.headers()["www-authenticate"].to_str().unwrap().to_owned();
        (answer.status().as_u16(), told)
    };
    let led = |status: u16, error: &str| {
        let base = &world.base;
        let document = format!("{base}/.well-known/oauth-protected-resource/mcp");
        let told = format!(
            "Bearer realm=\"sinew\"{error}, scope=\"sinew:client\", resource_metadata=\"{document}\""
        );
        (status, told)
    };
    let token = |changes: Value| {
        let mut claims = provider.claims();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        key.token(&claims)
    };
    assert_eq!(challenge("/mcp", None).await, led(401, ""));
    let invalid = ", error=\"invalid_token\"";
    assert_eq!(challenge("/mcp", Some("nothing")).await, led(401, invalid));
    assert_eq!(challenge("/mcp", Some(&token(json!({"exp": 7})))).await, led(401, invalid));
    let insufficient = ", error=\"insufficient_scope\"";
    assert_eq!(challenge("/mcp", Some(&token(json!({"scope": "openid"})))).await, led(403, insufficient));
    let plain = |status: u16, rest: &str| (status, format!("Bearer realm=\"sinew\"{rest}"));
    assert_eq!(challenge("/a2a", None).await, plain(401, ", scope=\"sinew:client\""));
    // A role that is too low names the one that the work needs.
    let start = challenge("/api/v1/executions", Some(&token(json!({"scope": "sinew:operator"})))).await;
    assert_eq!(start, plain(403, ", error=\"insufficient_scope\", scope=\"sinew:client\""));
    world.end().await;

    // Without a provider there is no document, and no challenge names one.
    let world = GatewayWorld::with(&[], |options| options.access.is_required = true).await;
    let absent = world.request(Method::GET, "/.well-known/oauth-protected-resource").send().await.unwrap();
    assert_eq!(absent.status(), 404);
    let refused = world.request(Method::POST, "/mcp").json(&json!({})).send().await.unwrap();
    assert_eq!(refused.headers()["www-authenticate"], "Bearer realm=\"sinew\"");
    world.end().await;
}
