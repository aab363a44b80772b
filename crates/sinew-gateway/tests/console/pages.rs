//! Pages over plain HTTP: what they say without a script, their headers, and which forms are obeyed.

use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Response, StatusCode};
use serde_json::json;
use sinew_gateway::ConsoleMode;

use super::world::{CHAIN, ConsoleWorld, HOSTILE};

/// Every page, once the world is filled.
pub(super) const PAGES: [&str; 42] = [
    "/console",
    "/console/executions",
    "/console/executions?status=failed&since=1h",
    "/console/executions?status=failed&error=SINEW-5001&hide=caller,labels",
    "/console/executions/bad/case?node=ship",
    "/console/desk?kind=agent",
    "/console/executions/good",
    "/console/executions/bad",
    "/console/executions/bad?node=ship",
    "/console/executions/bad?node=invoice",
    "/console/executions/bad?status=failed,skipped",
    "/console/executions/asks",
    "/console/executions/bad/timeline?node=ship",
    "/console/executions/bad/data?node=ship",
    "/console/executions/bad/events",
    "/console/executions/bad/timeline",
    "/console/executions/asks/timeline?from=0&to=&cut=1",
    "/console/executions/good/data",
    "/console/executions/good/artifacts",
    "/console/executions/bad/agents",
    "/console/executions/bad/source",
    "/console/executions/bad/compare?with=good",
    "/console/executions/bad/retry",
    "/console/executions/good/fork?at=a",
    "/console/executions/asks/cancel",
    "/console/executions/asks/approval",
    "/console/approvals",
    "/console/workflows",
    "/console/workflows/chain",
    "/console/workflows/chain/start",
    "/console/workflows/chain/remove",
    "/console/desk",
    "/console/workflows?text=chain",
    "/console/agents",
    "/console/agents?text=ship",
    "/console/agents/shipper",
    "/console/artifacts?name=report",
    "/console/traffic",
    "/console/import",
    "/console/chat",
    "/console/chat/one",
    "/console/help?text=gateway",
];

/// The token of a form in a page, and the cookie that goes with it.
async fn form_pass(world: &ConsoleWorld, path: &str) -> (String, String) {
    let (status, headers, text) = world.page(path).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let cookie = headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let token = text.split("name=\"form_token\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    (token.to_owned(), cookie.split(';').next().unwrap().to_owned())
}

/// Sends a form as a browser does.
async fn send_form(
    world: &ConsoleWorld,
    path: &str,
    origin: Option<&str>,
    cookie: Option<&str>,
    fields: &[(&str, &str)],
) -> Response {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut request = client.post(format!("{}{path}", world.mesh.base)).body(body.join("&"));
    request = request.header("content-type", "application/x-www-form-urlencoded");
    if let Some(origin) = origin {
        request = request.header(ORIGIN, origin);
    }
    if let Some(cookie) = cookie {
        request = request.header(COOKIE, cookie);
    }
    request.send().await.unwrap()
}

/// The workflow editor without JavaScript.
pub(super) struct DeskClient<'w> {
    world: &'w ConsoleWorld,
    token: String,
    cookie: String,
}

impl<'w> DeskClient<'w> {
    pub(super) async fn open(world: &'w ConsoleWorld) -> Self {
        let (token, cookie) = form_pass(world, "/console/desk").await;
        Self { world, token, cookie }
    }

    /// Sends the form, and gives the page that answers it.
    pub(super) async fn send(&self, fields: &[(&str, &str)]) -> String {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let encoded: Vec<(&str, String)> = fields.iter().map(|(name, text)| (*name, encode(text))).collect();
        let pass = ("form_token", self.token.as_str());
        let all: Vec<(&str, &str)> =
            std::iter::once(pass).chain(encoded.iter().map(|(name, text)| (*name, text.as_str()))).collect();
        let own = self.world.mesh.base.as_str();
        let answer = send_form(self.world, "/console/desk", Some(own), Some(&self.cookie), &all).await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer.text().await.unwrap()
    }
}

#[tokio::test]
async fn every_page_reads_without_a_script_and_is_guarded() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    for path in PAGES {
        let (status, headers, text) = world.page(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        assert_eq!(text.matches("<h1").count(), 1, "{path}");
        // The policy would refuse what is inline.
        for inline in [" style=\"", "<style", " onclick", "<script>", "javascript:"] {
            assert!(!text.contains(inline), "{path} has {inline}");
        }
        assert!(text.len() < 256 << 10, "{path}: {} bytes", text.len());
    }
    let check = |text: &str, wanted: &[&str]| {
        for one in wanted {
            assert!(text.contains(one), "{one:?} is not in {text}");
        }
    };
    let (_, _, failed) = world.page("/console/executions?status=failed").await;
    check(&failed, &[">bad</a>", "the truck broke down", "sinew execution list --status failed"]);
    assert!(!failed.contains(">good</a>"), "{failed}");
    let (_, _, bad) = world.page("/console/executions/bad?node=ship").await;
    check(
        &bad,
        &[
            "the truck broke down",
            "data-node=\"invoice\"",
            "sinew execution retry bad --dry-run",
            "sinew execution describe bad --node ship",
            "<h3>Input</h3>",
        ],
    );
    let (_, _, compared) = world.page("/console/executions/bad/compare?with=good").await;
    check(
        &compared,
        &[
            "<h2>Differences</h2>",
            "sinew execution diff bad good",
            "<b>different</b>",
            "replace <code>/value</code>",
        ],
    );
    let (_, _, retry) = world.page("/console/executions/bad/retry").await;
    check(
        &retry,
        &[
            "Would keep</dt><dd><code>check</code>",
            "Would run again</dt><dd><code>ship</code>",
            "Would reset</dt><dd><code>invoice</code>",
        ],
    );
    // The list of questions is filtered by the server.
    for (query, is_there) in [
        ("", true),
        ("?workflow=review", true),
        ("?workflow=chain", false),
        ("?text=ASKS", true),
        ("?text=%3Cb%3E", false),
        ("?person=gateway", true),
        ("?person=ada", false),
    ] {
        let (_, _, questions) = world.page(&format!("/console/approvals{query}")).await;
        assert_eq!(questions.contains("executions/asks/approval"), is_there, "{query}: {questions}");
        assert!(is_there || questions.contains("No matching questions."), "{query}: {questions}");
    }
    let (_, _, events) = world.page("/console/executions/bad/events").await;
    let (first, last) = (events.find("workflow_execution_start"), events.find("workflow_execution_result"));
    assert!(last < first && last.is_some(), "the newest event is not first: {events}");
    world.end().await;
}

#[tokio::test]
async fn failures_are_pages_with_their_code() {
    let world = ConsoleWorld::new().await;
    for (path, wanted, code) in [
        ("/console/executions/nothing", StatusCode::NOT_FOUND, "SINEW-8020"),
        ("/console/workflows/nothing", StatusCode::NOT_FOUND, "SINEW-8039"),
        ("/console/nothing", StatusCode::NOT_FOUND, "SINEW-9003"),
        ("/console/executions?since=yesterday", StatusCode::BAD_REQUEST, "SINEW-9011"),
        ("/console/executions?cursor=wrong", StatusCode::BAD_REQUEST, "SINEW-9011"),
        ("/console/help/SINEW-0000", StatusCode::NOT_FOUND, "SINEW-9003"),
    ] {
        let (status, headers, text) = world.page(path).await;
        assert_eq!(status, wanted, "{path}: {text}");
        assert!(text.contains(&format!("/console/help/{code}")), "{path} does not name {code}: {text}");
        assert!(headers.contains_key("content-security-policy"), "{path}");
    }
    world.end().await;
}

#[tokio::test]
async fn only_own_forms_are_obeyed() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let path = "/console/executions/asks/cancel";
    let (token, cookie) = form_pass(&world, path).await;
    let own = world.mesh.base.clone();
    let other = "0123456789abcdef0123456789abcdef";
    let forged = format!("sinew-console={other}");
    let (token_field, other_field) = (Some(token.as_str()), Some(other));
    // Origin, cookie and token of forms, one of them wrong or missing.
    let refused: [[Option<&str>; 3]; 7] = [
        [None, Some(&cookie), token_field],
        [Some("http://localhost:1"), Some(&cookie), token_field],
        [Some("null"), Some(&cookie), token_field],
        [Some(&own), None, token_field],
        [Some(&own), Some(&cookie), None],
        [Some(&own), Some(&cookie), other_field],
        [Some(&own), Some(&forged), token_field],
    ];
    for [origin, cookie, token] in refused {
        let fields: Vec<_> = token.map(|token| ("form_token", token)).into_iter().collect();
        let answer = send_form(&world, path, origin, cookie, &fields).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{origin:?} {cookie:?} {fields:?}");
    }
    world.reaches("asks", "waiting").await;
    let fields = [("form_token", token.as_str()), ("reason", "enough")];
    let answer = send_form(&world, path, Some(&own), Some(&cookie), &fields).await;
    assert_eq!(
        (answer.status(), &answer.headers()[LOCATION]),
        (StatusCode::SEE_OTHER, &"/console/executions/asks".parse().unwrap())
    );
    world.reaches("asks", "cancelled").await;
    // A name of another host is refused by the gateway, before any page.
    let named =
        world.mesh.http.get(format!("{own}/console")).header(HOST, "evil.example").send().await.unwrap();
    assert_eq!(named.status(), StatusCode::FORBIDDEN);
    world.end().await;
}

#[tokio::test]
async fn people_start_retry_fork_and_decide_by_forms() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let own = Some(world.mesh.base.clone());
    let (token, cookie) = form_pass(&world, "/console/workflows/chain/start").await;
    let pass = ("form_token", token.as_str());
    let send = async |path: &str, fields: &[(&str, &str)]| {
        let fields: Vec<_> = [pass].iter().chain(fields).copied().collect();
        let answer = send_form(&world, path, own.as_deref(), Some(&cookie), &fields).await;
        let to = answer.headers().get(LOCATION).map(|to| to.to_str().unwrap().to_owned());
        (answer.status(), to, answer.text().await.unwrap())
    };
    // The reason why an input is refused stands in the form, beside what was written.
    let start = "/console/workflows/chain/start";
    let (status, _, text) = send(start, &[("in.value", "kept text"), ("in.amount", "-1")]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(
        text.contains("SINEW-4201") && text.contains("less than the minimum") && text.contains("kept text"),
        "{text}"
    );
    // A form that is sent twice starts once.
    let fields = [("in.value", "x"), ("in.amount", "2"), ("labels", "stage=test"), ("key", "once")];
    let (status, first, text) = send(start, &fields).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{text}");
    assert_eq!(send(start, &fields).await.1, first);
    let id = first.unwrap().rsplit('/').next().unwrap().to_owned();
    let failed = world.reaches(&id, "failed").await;
    assert_eq!(
        (&failed["input"], &failed["labels"]),
        (&json!({"value": "x", "amount": 2}), &json!({"stage": "test"}))
    );

    world.mend();
    let (status, ..) = send(&format!("/console/executions/{id}/retry"), &[("reason", "mended")]).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let ended = world.reaches(&id, "succeeded").await;
    assert_eq!(ended["output"], json!({"value": "x"}), "{ended}");

    // It is started again with its input, which may be changed; the label names it.
    let (_, _, form) = world.page(&format!("{start}?execution={id}")).await;
    for part in [">x</textarea>", "value=\"2\"", &format!("value=\"stage=test, rerun_of={id}\"")] {
        assert!(form.contains(part), "{part}: {form}");
    }
    let (_, _, page) = world.page(&format!("/console/executions/{id}")).await;
    assert!(
        page.contains(&format!("data-command=\"sinew execution rerun {} --latest\"", &id[..10])),
        "{page}"
    );
    let (status, _, text) = world.page(&format!("/console/workflows/review/start?execution={id}")).await;
    assert!(
        status == StatusCode::OK && text.contains("&quot;amount&quot;: 2"),
        "a form without fields: {text}"
    );

    let outputs = "%7B%22check%22%3A%7B%22value%22%3A%22other%22%7D%7D";
    let (status, fork, text) = send(&format!("/console/executions/{id}/fork"), &[("outputs", outputs)]).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{text}");
    let fork = fork.unwrap().rsplit('/').next().unwrap().to_owned();
    assert_ne!(fork, id);
    assert_eq!(world.reaches(&fork, "succeeded").await["output"], json!({"value": "other"}));

    let approval = "/console/executions/asks/approval";
    let (status, _, text) = send(approval, &[("node", "h"), ("decision", "reject")]).await;
    assert!(
        status == StatusCode::BAD_REQUEST && text.contains("a rejection needs a comment"),
        "{status} {text}"
    );
    // The card of the list marks the field, and selected cards are decided together.
    let inbox = "/console/approvals";
    let (status, _, text) =
        send(inbox, &[("execution", "asks"), ("node", "h"), ("decision", "reject")]).await;
    let is_marked = text.contains("aria-invalid=\"true\"") && !text.contains("class=\"problem\"");
    assert!(status == StatusCode::BAD_REQUEST && is_marked, "{status} {text}");
    let (status, _, text) = send(inbox, &[("decision", "approve"), ("comment", "all")]).await;
    assert!(status == StatusCode::BAD_REQUEST && text.contains("no questions selected"), "{status} {text}");
    let (status, _, text) = send(inbox, &[("question", "none/h"), ("decision", "approve")]).await;
    assert!(status == StatusCode::NOT_FOUND && text.contains("class=\"problem\""), "{status} {text}");
    let (status, ..) =
        send(approval, &[("node", "h"), ("decision", "approve"), ("comment", "well+done")]).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let decided = world.reaches("asks", "succeeded").await;
    assert_eq!(decided["decisions"][0]["comment"], "well done", "{decided}");
    world.end().await;
}

#[tokio::test]
async fn several_executions_are_steered_after_their_number_is_typed() {
    let world = ConsoleWorld::new().await;
    world.fill().await;
    let own = world.mesh.base.clone();
    let (token, cookie) = form_pass(&world, "/console/executions").await;
    let send = async |count: &str| {
        let fields = [
            ("form_token", token.as_str()),
            ("command", "cancel"),
            ("execution", "asks"),
            ("execution", "good"),
            ("reason", "enough"),
            ("count", count),
        ];
        let answer = send_form(&world, "/console/bulk", Some(&own), Some(&cookie), &fields).await;
        (answer.status(), answer.text().await.unwrap())
    };
    let (status, text) = send("").await;
    assert!(status == StatusCode::OK && text.contains("Cancel 2 executions?"), "{status} {text}");
    assert_eq!(send("3").await.0, StatusCode::BAD_REQUEST);
    world.reaches("asks", "waiting").await;
    let (status, text) = send("2").await;
    // One goes on and is cancelled; the other has ended, and is told with its code.
    assert!(
        status == StatusCode::OK && text.contains("1 accepted, 1 rejected") && text.contains("SINEW-8024"),
        "{text}"
    );
    world.reaches("asks", "cancelled").await;
    world.reaches("good", "succeeded").await;
    world.end().await;
}

#[tokio::test]
async fn a_file_is_checked_deployed_and_removed_at_the_desk() {
    let world = ConsoleWorld::new().await;
    let own = world.mesh.base.clone();
    let (token, cookie) = form_pass(&world, "/console/desk").await;
    let send = async |path: &str, text: &str, work: &str| {
        let text =
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let fields = [("form_token", token.as_str()), ("name", "new.yaml"), ("text", &text), ("work", work)];
        let answer = send_form(&world, path, Some(&own), Some(&cookie), &fields).await;
        let to = answer.headers().get(LOCATION).map(|to| to.to_str().unwrap().to_owned());
        (answer.status(), to, answer.text().await.unwrap())
    };
    let wrong = CHAIN.replace("agent_name: shipper", "agent: shipper");
    let (status, _, text) = send("/console/desk", &wrong, "check").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let line = wrong.lines().position(|line| line.contains("id: ship")).unwrap() + 1;
    assert!(text.contains(&format!("data-line=\"{line}\"")) && text.contains("is-error"), "{text}");
    let (status, _, text) = send("/console/desk", &wrong, "deploy").await;
    assert!(!status.is_success() || text.contains("problem"), "{status} {text}");
    let (_, _, text) = send("/console/desk", CHAIN, "check").await;
    assert!(text.contains("0 errors") && text.contains("data-node=\"ship\""), "{text}");
    let (status, to, text) = send("/console/desk", CHAIN, "deploy").await;
    assert_eq!((status, to.as_deref()), (StatusCode::SEE_OTHER, Some("/console/workflows/new")), "{text}");
    let (status, ..) = send("/console/workflows/new/remove", "", "").await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let (_, _, list) = world.page("/console/workflows").await;
    assert!(!list.contains("/console/workflows/new\""), "{list}");
    world.end().await;
}

#[tokio::test]
async fn a_conversion_is_tried_at_the_desk() {
    let world = ConsoleWorld::new().await;
    let own = world.mesh.base.clone();
    let (token, cookie) = form_pass(&world, "/console/desk").await;
    let review = crate::support::review();
    let file = |function: &str| {
        let mut file: serde_json::Value = serde_json::from_str(&review).unwrap();
        file["connections"][0]["conversion_function"] = json!(function);
        file.to_string()
    };
    let tried = async |function: &str, sample: &str| {
        let coded = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let (text, sample) = (coded(&file(function)), coded(sample));
        let fields = [
            ("form_token", token.as_str()),
            ("name", "review.json"),
            ("text", &text),
            ("connection", "c"),
            ("sample", &sample),
            ("work", "try"),
        ];
        let answer = send_form(&world, "/console/desk", Some(&own), Some(&cookie), &fields).await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer.text().await.unwrap()
    };
    let page = tried("lambda d: {'twice': d['value'] * 2}", "21").await;
    assert!(page.contains("<b>converted</b>") && page.contains("&quot;twice&quot;: 42"), "{page}");
    let page = tried("lambda d: d['<i>none</i>']", "21").await;
    assert!(page.contains("<b>fell back</b>") && page.contains("data-line=\"1\""), "{page}");
    assert!(!page.contains("<i>none</i>"), "{page}");
    world.end().await;
}

#[tokio::test]
async fn a_read_only_console_changes_nothing() {
    let world = ConsoleWorld::with(|options| options.console = Some(ConsoleMode::ReadOnly)).await;
    world.fill().await;
    for path in
        PAGES.into_iter().filter(|path| !path.starts_with("/console/desk") && *path != "/console/import")
    {
        let (status, _, text) = world.page(path).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(!text.contains("method=\"post\""), "{path} has a form that steers");
    }
    // Actions are named, with the reason why they cannot be used.
    let (_, _, text) = world.page("/console/executions/bad").await;
    for wanted in ["disabled", ">Retry…</button>", "This console is read-only."] {
        assert!(text.contains(wanted), "no {wanted}");
    }
    let token = "0123456789abcdef0123456789abcdef";
    let cookie = format!("sinew-console={token}");
    let own = world.mesh.base.clone();
    let answer = send_form(
        &world,
        "/console/executions/asks/cancel",
        Some(&own),
        Some(&cookie),
        &[("form_token", token)],
    )
    .await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert!(answer.text().await.unwrap().contains("SINEW-9013"));
    world.reaches("asks", "waiting").await;
    world.end().await;
}

#[tokio::test]
async fn without_a_console_there_are_no_pages() {
    let world = ConsoleWorld::with(|_| {}).await;
    assert_eq!(world.page("/console").await.0, StatusCode::NOT_FOUND);
    world.end().await;
}

#[tokio::test]
async fn text_of_workflows_and_agents_is_data() {
    let world = ConsoleWorld::new().await;
    world.start("chain", "hostile", &json!({ "value": HOSTILE, HOSTILE: HOSTILE })).await;
    world.start("single", "echoed", &json!({ "value": HOSTILE })).await;
    world.start("review", "asked", &json!({ HOSTILE: HOSTILE, "long": "x".repeat(200_000) })).await;
    world.reaches("hostile", "failed").await;
    world.reaches("echoed", "succeeded").await;
    world.reaches("asked", "waiting").await;
    for path in [
        "/console/executions",
        "/console/executions/hostile?node=check",
        "/console/executions/hostile/events",
        "/console/executions/hostile/data",
        "/console/executions/echoed?node=a",
        "/console/executions/echoed/artifacts",
        "/console/executions/asked/approval",
        "/console/approvals",
        "/console/executions?label=%3Cimg%20src%3Dx%3E%3Dy&workflow=%22%3E%3Cscript%3E",
        "/console/executions/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/console/executions/hostile?node=%3Cimg%20src=x%20onerror=alert(1)%3E",
        "/console/workflows/%22%3E%3Cscript%3E",
        "/console/%3Cscript%3E",
        "/console/help?text=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    ] {
        let (_, _, text) = world.page(path).await;
        for markup in
            ["<img", "<script>", "<svg onload", "\u{1b}", "\u{202e}", "\u{2066}", "href=\"javascript"]
        {
            assert!(!text.contains(markup), "{path} has {markup:?}");
        }
        assert!(text.len() < 256 << 10, "{path}: {} bytes", text.len());
    }
    world.end().await;
}
