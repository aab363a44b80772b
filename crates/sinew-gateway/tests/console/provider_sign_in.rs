//! Signing in to the console at an OpenID provider: in a browser, and with all that can be forged on the way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Form, Query};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use axum::{Json, Router};
use data_encoding::BASE64URL_NOPAD;
use reqwest::header::{COOKIE, LOCATION, REFRESH, SET_COOKIE};
use reqwest::{Response, redirect};
use serde_json::{Value, json};
use sinew_gateway::{ConsoleMode, OidcClient, OidcOptions};

use super::browser::Browser;
use crate::oidc::{Provider, SigningKey};
use crate::support::{GatewayWorld, SINGLE};

/// Id and secret of the gateway at the provider, as it sends them: `console` and `a secret`.
const CREDENTIALS: &str = "Basic Y29uc29sZTphK3NlY3JldA==";
/// Where a browser comes back to.
const RETURN: &str = "/console/sign-in/openid/return";

type Fields = HashMap<String, String>;

/// Tokens that the provider gives next, and the sign-ins that wait for theirs.
#[derive(Default)]
struct ProviderState {
    tokens: Value,
    sign_ins: HashMap<String, Fields>,
}

/// A provider on whose page everybody is signed in at once, and a gateway that trusts it.
struct SignInWorld {
    provider: Provider,
    key: SigningKey,
    state: Arc<Mutex<ProviderState>>,
    mesh: GatewayWorld,
    http: reqwest::Client,
}

/// Keeps what a sign-in was begun with under a code, and sends the browser back with the code.
fn authorize(state: &Mutex<ProviderState>, query: Fields) -> Redirect {
    let mut state = state.lock().unwrap();
    let code = format!("code-{}", state.sign_ins.len());
    let back = format!("{}?code={code}&state={}", query["redirect_uri"], query["state"]);
    state.sign_ins.insert(code, query);
    Redirect::to(&back)
}

/// Gives tokens for a code, once, to whoever began the sign-in.
fn exchange(state: &Mutex<ProviderState>, headers: &HeaderMap, form: &Fields) -> axum::response::Response {
    let mut state = state.lock().unwrap();
    let Some(begun) = state.sign_ins.remove(&form["code"]) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, form["code_verifier"].as_bytes());
    let is_right = begun["code_challenge"] == BASE64URL_NOPAD.encode(digest.as_ref())
        && begun["code_challenge_method"] == "S256"
        && begun["redirect_uri"] == form["redirect_uri"]
        && begun["client_id"] == "console"
        && form["grant_type"] == "authorization_code"
        && headers.get("authorization").is_some_and(|value| value == CREDENTIALS);
    // The place of a code stays taken.
    state.sign_ins.insert(format!("{} was given", form["code"]), Fields::new());
    if is_right {
        Json(state.tokens.clone()).into_response()
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

impl SignInWorld {
    async fn new() -> Self {
        let state = Arc::new(Mutex::new(ProviderState::default()));
        let (asked, exchanged) = (Arc::clone(&state), Arc::clone(&state));
        let routes = Router::new()
            .route("/realm/authorize", get(async move |Query(query)| authorize(&asked, query)))
            .route(
                "/realm/token",
                post(async move |headers: HeaderMap, Form(form): Form<Fields>| {
                    exchange(&exchanged, &headers, &form)
                }),
            );
        // Another site than that of the gateway, which is 127.0.0.1.
        let provider = Provider::start_with("localhost", routes).await;
        let key = SigningKey::ed25519("a");
        provider.publish(&[&key]);
        let mut oidc = OidcOptions::new(&provider.issuer, "sinew");
        let secret = Some("a secret".to_owned());
        let scopes = "openid sinew:client".to_owned();
        oidc.client = Some(OidcClient { secret, scopes, ..OidcClient::new("console") });
        let mesh = GatewayWorld::with(&[("single", SINGLE)], |options| {
            (options.access.is_required, options.access.oidc) = (true, vec![oidc]);
            options.console = Some(ConsoleMode::Full);
        })
        .await;
        let http = reqwest::Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        let world = Self { provider, key, state, mesh, http };
        world.give("sinew:client");
        world
    }

    /// From now on access tokens have this scope.
    fn give(&self, scope: &str) {
        let mut claims = self.provider.claims();
        claims["scope"] = json!(scope);
        self.give_tokens(json!({"access_token": self.key.token(&claims), "token_type": "Bearer"}));
    }

    fn give_tokens(&self, tokens: Value) {
        self.state.lock().unwrap().tokens = tokens;
    }

    async fn get(&self, path: &str, cookie: &str) -> Response {
        let address =
            if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.mesh.base) };
        self.http.get(address).header(COOKIE, cookie).send().await.unwrap()
    }

    /// Goes to the provider and back: the path on the gateway with the code, the cookie of the visit, and the nonce.
    async fn visit(&self) -> (String, String, String) {
        let answer = self.get("/console/sign-in/openid?next=/console/agents", "").await;
        assert_eq!(answer.status(), 303);
        let cookie = cookie_named(&answer, "sinew-visit").unwrap();
        let page = answer.headers()[LOCATION].to_str().unwrap().to_owned();
        let nonce = page.split("&nonce=").nth(1).unwrap().split('&').next().unwrap().to_owned();
        let back = self.get(&page, "").await.headers()[LOCATION].to_str().unwrap().to_owned();
        let path = back.strip_prefix(&self.mesh.base).unwrap().to_owned();
        assert!(path.starts_with(RETURN), "{path}");
        (path, cookie, nonce)
    }

    /// Comes back with a path and a cookie: the cookie of the session, or the page that says why there is none.
    async fn come_back(&self, path: &str, cookie: &str) -> Result<String, String> {
        let answer = self.get(path, cookie).await;
        let (status, session) = (answer.status(), cookie_named(&answer, "sinew-session"));
        assert_eq!(
            cookie_named(&answer, "sinew-visit").as_deref(),
            Some("sinew-visit="),
            "the visit is over"
        );
        if let Some(session) = session {
            assert_eq!(
                (status.as_u16(), &answer.headers()[REFRESH]),
                (200, &"0; url=/console/agents".parse().unwrap())
            );
            Ok(session)
        } else {
            assert_eq!(status, 401);
            Err(answer.text().await.unwrap())
        }
    }
}

/// The cookie of this name that an answer sets, as a browser sends it back.
fn cookie_named(answer: &Response, name: &str) -> Option<String> {
    let mut cookies = answer.headers().get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap());
    let cookie = cookies.find(|cookie| cookie.starts_with(&format!("{name}=")))?;
    assert!(cookie.contains("; HttpOnly; SameSite="), "{cookie}");
    Some(cookie.split(';').next().unwrap().to_owned())
}

#[tokio::test]
async fn a_person_signs_in_at_a_provider_and_comes_back_to_the_page() {
    let Some(browser) = Browser::start().await else { return };
    let world = SignInWorld::new().await;
    let asked = "/console/executions?status=failed";
    browser.open(&format!("{}{asked}", world.mesh.base)).await;
    browser.wait_for_text("Sign in with localhost").await;
    assert_eq!(super::looks::violations(&browser).await, Vec::<String>::new());
    browser.save_picture("sign-in-light").await;
    browser.click("a.primary").await;
    browser.wait_until(&format!("location.pathname + location.search === '{asked}'")).await;
    browser.wait_for_text("No matching executions").await;
    browser.open(&format!("{}/console", world.mesh.base)).await;
    browser.wait_for_text("oidc-ann@example.com").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.mesh.end().await;
}

#[tokio::test]
async fn a_sign_in_ends_where_it_began_and_once() {
    let world = SignInWorld::new().await;
    let (path, cookie, _) = world.visit().await;
    let session = world.come_back(&path, &cookie).await.unwrap();
    assert_eq!(world.get("/console/executions", &session).await.status(), 200);
    let start = world.get("/console/workflows/single/start", &session).await.text().await.unwrap();
    assert!(start.contains("<form"), "a client starts");
    let again = world.come_back(&path, &cookie).await.unwrap_err();
    assert!(again.contains("issued no tokens"), "a code is taken once: {again}");

    let refused = async |path: &str, cookie: &str, words: &str| {
        let page = world.come_back(path, cookie).await.unwrap_err();
        assert!(page.contains(words), "{path} {cookie}: {page}");
    };
    let not_begun = "was not started in this browser";
    let (path, cookie, _) = world.visit().await;
    let (_, other, _) = world.visit().await;
    refused(&path, "", not_begun).await;
    refused(&path, "sinew-visit=a.b.c", not_begun).await;
    refused(&path, &other, not_begun).await;
    refused(RETURN, &cookie, not_begun).await;
    let state = path.split("&state=").nth(1).unwrap();
    refused(&format!("{RETURN}?state={state}&error=%3Cb%3Eaccess_denied"), &cookie, "&lt;b&gt;access_denied")
        .await;
    refused(&format!("{RETURN}?state={state}&code=guessed"), &cookie, "issued no tokens").await;
    // The secrets of one visit with the code of another: the provider finds the verifier wrong.
    let (mine, theirs) = (cookie.split_once('=').unwrap().1, other.split_once('=').unwrap().1);
    let verifier = theirs.split('~').next().unwrap().rsplit('.').next().unwrap();
    let (kept, _) = mine.split('~').next().unwrap().rsplit_once('.').unwrap();
    refused(&path, &format!("sinew-visit={kept}.{verifier}~"), "issued no tokens").await;
    world.mesh.end().await;
}

#[tokio::test]
async fn tokens_of_a_sign_in_must_open_the_gateway() {
    let world = SignInWorld::new().await;
    world.give("openid profile");
    let (path, cookie, _) = world.visit().await;
    let page = world.come_back(&path, &cookie).await.unwrap_err();
    assert!(page.contains("none of the scopes sinew:operator"), "{page}");

    // Where the access token is for somebody else, the ID token counts, if it is of this visit.
    let tokens = |nonce: &str| {
        let mut claims = world.provider.claims();
        (claims["nonce"], claims["scope"]) = (json!(nonce), json!("sinew:operator"));
        json!({"access_token": "opaque", "id_token": world.key.token(&claims)})
    };
    let (path, cookie, _) = world.visit().await;
    world.give_tokens(tokens("of another visit"));
    assert!(world.come_back(&path, &cookie).await.is_err());
    let (path, cookie, nonce) = world.visit().await;
    world.give_tokens(tokens(&nonce));
    let session = world.come_back(&path, &cookie).await.unwrap();
    let start = world.get("/console/workflows/single/start", &session).await.text().await.unwrap();
    let (header, main) = start.split_once("<main").unwrap();
    assert!(!main.contains("<form"), "an operator looks");
    for wanted in ["Your role is operator, which is read-only.", "Sign out", "class=\"user\""] {
        assert!(header.contains(wanted), "no {wanted} in {header}");
    }

    // An access token that opens by itself does not make up for an ID token of another visit.
    let both = |nonce: &str| {
        let mut tokens = tokens(nonce);
        let mut claims = world.provider.claims();
        claims["scope"] = json!("sinew:operator");
        tokens["access_token"] = world.key.token(&claims).into();
        tokens
    };
    let (path, cookie, _) = world.visit().await;
    world.give_tokens(both("of another visit"));
    let page = world.come_back(&path, &cookie).await.unwrap_err();
    assert!(page.contains("was not started in this browser"), "{page}");
    for (issuer, opens) in [("https://other.example", false), (world.provider.issuer.as_str(), true)] {
        let (path, cookie, nonce) = world.visit().await;
        world.give_tokens(both(&nonce));
        let answered = world.come_back(&format!("{path}&iss={issuer}"), &cookie).await;
        assert_eq!(answered.is_ok(), opens, "{issuer}: {answered:?}");
    }

    world.give_tokens(json!({"access_token": "opaque"}));
    let (path, cookie, _) = world.visit().await;
    let page = world.come_back(&path, &cookie).await.unwrap_err();
    assert!(page.contains("it is not a token"), "{page}");
    world.mesh.end().await;
}
