//! Every page and form of the console against every kind of credentials. The table is written by hand: a page without a row
//! fails.

use std::collections::BTreeSet;

use reqwest::header::{COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use sinew_console::described_pages;

use crate::support::GatewayWorld;

/// Key that a page needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageNeeds {
    /// No key: the page says nothing of the mesh.
    Nothing,
    /// A key that reads.
    Reader,
    /// A key that starts and steers.
    Steerer,
    /// A key that deploys.
    Deployer,
}

use PageNeeds::{Deployer, Nothing, Reader, Steerer};

const PAGES: [(&str, &str, PageNeeds); 68] = [
    ("GET", "/", Reader),
    ("GET", "/console", Reader),
    ("GET", "/console/", Reader),
    ("GET", "/console/assets/{name}", Nothing),
    ("GET", "/console/executions", Reader),
    ("GET", "/console/executions/{id}", Reader),
    ("GET", "/console/executions/{id}/timeline", Reader),
    ("GET", "/console/executions/{id}/events", Reader),
    ("GET", "/console/executions/{id}/data", Reader),
    ("GET", "/console/executions/{id}/artifacts", Reader),
    ("GET", "/console/executions/{id}/artifact-image", Reader),
    ("GET", "/console/executions/{id}/agents", Reader),
    ("GET", "/console/executions/{id}/compare", Reader),
    ("GET", "/console/executions/{id}/source", Reader),
    ("GET", "/console/executions/{id}/case", Reader),
    ("GET", "/console/executions/{id}/cancel", Reader),
    ("POST", "/console/executions/{id}/cancel", Steerer),
    ("GET", "/console/executions/{id}/pause", Reader),
    ("POST", "/console/executions/{id}/pause", Steerer),
    ("GET", "/console/executions/{id}/resume", Reader),
    ("POST", "/console/executions/{id}/resume", Steerer),
    ("GET", "/console/executions/{id}/retry", Reader),
    ("POST", "/console/executions/{id}/retry", Steerer),
    ("GET", "/console/executions/{id}/fork", Reader),
    ("POST", "/console/executions/{id}/fork", Steerer),
    ("GET", "/console/executions/{id}/approval", Reader),
    ("POST", "/console/executions/{id}/approval", Steerer),
    ("POST", "/console/bulk", Steerer),
    ("GET", "/console/approvals", Reader),
    ("POST", "/console/approvals", Steerer),
    ("GET", "/console/workflows", Reader),
    ("GET", "/console/workflows/{name}", Reader),
    ("GET", "/console/workflows/{name}/start", Reader),
    ("POST", "/console/workflows/{name}/start", Steerer),
    ("GET", "/console/workflows/{name}/remove", Deployer),
    ("GET", "/console/desk", Steerer),
    ("POST", "/console/desk", Steerer),
    ("GET", "/console/catalogue", Reader),
    ("GET", "/console/catalogue/{name}", Reader),
    ("GET", "/console/agents", Reader),
    ("GET", "/console/agents/{name}", Reader),
    ("POST", "/console/agents/{name}/retire", Deployer),
    ("POST", "/console/agents/{name}/drain", Deployer),
    ("POST", "/console/agents/{name}/undrain", Deployer),
    ("GET", "/console/artifacts", Reader),
    ("GET", "/console/traffic", Reader),
    ("GET", "/console/audit", Reader),
    ("GET", "/console/reports/nodes", Reader),
    ("GET", "/console/reports/cost", Reader),
    ("GET", "/console/import", Reader),
    // Opens a file that the reader has, and changes nothing.
    ("POST", "/console/import", Reader),
    ("GET", "/console/chat", Reader),
    ("GET", "/console/chat/{name}", Reader),
    ("POST", "/console/chat/{name}", Steerer),
    ("POST", "/console/chat/{name}/decision", Steerer),
    ("GET", "/console/sign-in", Nothing),
    ("POST", "/console/sign-in", Nothing),
    ("GET", "/console/sign-in/openid", Nothing),
    ("GET", "/console/sign-in/openid/return", Nothing),
    ("POST", "/console/sign-out", Nothing),
    ("GET", "/console/help", Reader),
    ("GET", "/console/help/{code}", Reader),
    ("GET", "/console/{*rest}", Reader),
    ("POST", "/console/{*rest}", Steerer),
    // The last one: it removes what the others show.
    ("POST", "/console/workflows/{name}/remove", Deployer),
    ("POST", "/console/workflows/{name}/pause", Deployer),
    ("POST", "/console/workflows/{name}/resume", Deployer),
    ("POST", "/console/workflows/{name}/rollback", Deployer),
];

#[test]
fn every_page_has_a_row() {
    let wanted: BTreeSet<_> = PAGES.iter().map(|(method, path, _)| (*method, *path)).collect();
    let found: BTreeSet<_> = described_pages().into_iter().collect();
    assert_eq!(found, wanted);
    assert_eq!(found.len(), described_pages().len());
}

/// Keys of a gateway that asks for keys.
pub(crate) struct MatrixKeys<'a> {
    pub(crate) operator: &'a str,
    pub(crate) client: &'a str,
    pub(crate) admin: &'a str,
    /// An administrator's key for names that nothing has.
    pub(crate) elsewhere: &'a str,
    /// Keys that open nothing, each with its defect.
    pub(crate) unknown: [(&'a str, &'a str); 3],
}

/// Answer of a page.
struct PageAnswer {
    status: StatusCode,
    location: String,
    body: String,
}

impl PageAnswer {
    /// Whether it keeps its asker out.
    fn is_closed(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            || self.location.starts_with("/console/sign-in")
    }
}

/// A browser that sends forms of its own console, with a key instead of a session.
struct PageProbe<'a> {
    world: &'a GatewayWorld,
    http: Client,
    cookie: String,
    token: String,
    execution: &'a str,
}

impl<'a> PageProbe<'a> {
    async fn open(world: &'a GatewayWorld, execution: &'a str) -> Self {
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        let page = http.get(format!("{}/console/sign-in", world.base)).send().await.unwrap();
        let cookie = page.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
        let text = page.text().await.unwrap();
        let token = text.split("name=\"form_token\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        Self { world, http, cookie, token: token.to_owned(), execution }
    }

    async fn send(&self, method: &str, path: &str, key: Option<&str>) -> PageAnswer {
        let path = path.replace("{id}", self.execution).replace("{name}", "single");
        let path = path.replace("{code}", "SINEW-9015").replace("{*rest}", "nothing/here");
        let url = format!("{}{path}", self.world.base);
        let mut request = match method {
            "POST" => self
                .http
                .post(url)
                .header(ORIGIN, &self.world.base)
                .header("content-type", "application/x-www-form-urlencoded")
                .body(format!("form_token={}", self.token)),
            _ => self.http.get(url),
        };
        request = request.header(COOKIE, &self.cookie);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = request.send().await.unwrap();
        let location = answer.headers().get(LOCATION).map_or("", |value| value.to_str().unwrap()).to_owned();
        PageAnswer { status: answer.status(), location, body: answer.text().await.unwrap_or_default() }
    }
}

/// Asks for every page with every key: what is wrong, a line each. `marker` is text of the execution.
pub(crate) async fn wrong_pages(
    world: &GatewayWorld,
    keys: &MatrixKeys<'_>,
    (execution, marker): (&str, &str),
) -> Vec<String> {
    let probe = PageProbe::open(world, execution).await;
    let mut wrong = Vec::new();
    for (method, path, needs) in PAGES {
        let mut expect = async |who: &str, key: Option<&str>, is_right: &dyn Fn(&PageAnswer) -> bool| {
            let answer = probe.send(method, path, key).await;
            if !is_right(&answer) || answer.status.is_server_error() {
                let body: String = answer.body.chars().filter(|c| !c.is_control()).take(200).collect();
                wrong.push(format!("{method} {path}, {who}: {} {} {body}", answer.status, answer.location));
            }
        };
        let is_open = |answer: &PageAnswer| !answer.is_closed();
        // A sign-in without a key is refused by the page of signing in.
        let is_sign_in = path == "/console/sign-in";
        let opens_to_all = |answer: &PageAnswer| {
            !CLOSED_TO_ALL.contains(&answer.status) || (is_sign_in && answer.body.contains("<title>Sign in"))
        };
        let leads_to_sign_in = |answer: &PageAnswer| answer.location.starts_with("/console/sign-in");
        let is_forbidden = |answer: &PageAnswer| answer.status == StatusCode::FORBIDDEN;
        if needs == Nothing {
            expect("no key", None, &opens_to_all).await;
        } else {
            expect("no key", None, &leads_to_sign_in).await;
        }
        for (who, key) in keys.unknown {
            expect(who, Some(key), &|answer: &PageAnswer| answer.status == StatusCode::UNAUTHORIZED).await;
        }
        // Paths name the execution and the workflow themselves; only what they hold must not be told.
        let is_named = path.contains('{');
        let is_blind = |answer: &PageAnswer| {
            !answer.body.contains(marker)
                && !answer.body.contains("One agent")
                && (is_named || !(answer.body.contains("/single") || answer.body.contains(execution)))
        };
        expect("another scope", Some(keys.elsewhere), &is_blind).await;
        match needs {
            Nothing | Reader => {}
            Steerer => expect("a key that reads", Some(keys.operator), &is_forbidden).await,
            Deployer => {
                expect("a key that reads", Some(keys.operator), &is_forbidden).await;
                expect("a key that starts", Some(keys.client), &is_forbidden).await;
            }
        }
        match needs {
            Nothing => expect("a key", Some(keys.client), &opens_to_all).await,
            Reader => expect("the right key", Some(keys.operator), &is_open).await,
            Steerer => expect("the right key", Some(keys.client), &is_open).await,
            Deployer => expect("the right key", Some(keys.admin), &is_open).await,
        }
    }
    wrong
}

const CLOSED_TO_ALL: [StatusCode; 2] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
