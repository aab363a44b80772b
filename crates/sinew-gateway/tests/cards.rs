//! Cards as clients find them.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_gateway::{GrpcAddressForm, OidcOptions};
use sinew_protocol::card::Announcement;

use crate::support::{GatewayWorld, SINGLE, review};

#[tokio::test]
async fn cards_name_skills_and_interfaces() {
    let world = GatewayWorld::new(&[("single", SINGLE), ("review", &review())]).await;
    world.serve_echo().await;
    let answer = world.http.get(format!("{}/.well-known/agent-card.json", world.base)).send().await.unwrap();
    assert_eq!(answer.headers()["cache-control"], "public, max-age=30");
    let tag = answer.headers()["etag"].clone();
    assert!(httpdate::parse_http_date(answer.headers()["last-modified"].to_str().unwrap()).is_ok());
    let card: Value = answer.json().await.unwrap();
    let skills: Vec<&str> =
        card["skills"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(skills, ["one", "review", "single"]);
    let interfaces: Vec<(&Value, &Value)> = card["supportedInterfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["protocolBinding"], &it["url"]))
        .collect();
    let url = json!(format!("{}/a2a", world.base));
    assert_eq!(interfaces, [(&json!("JSONRPC"), &url), (&json!("HTTP+JSON"), &url)]);
    let extensions = card["capabilities"]["extensions"].as_array().unwrap();
    let params = |end: &str| {
        let found = extensions.iter().find(|it| it["uri"].as_str().unwrap().ends_with(end));
        found.unwrap_or_else(|| panic!("{end}: {card}"))["params"]["skills"].clone()
    };
    assert_eq!(params("/schemas")["single"]["inputSchema"]["required"], json!(["value"]));
    assert!(params("/workflow-visualization")["single"].as_str().unwrap().starts_with("flowchart"));
    // A client that has the card is told so.
    for (known, status) in [
        (tag.to_str().unwrap().to_owned(), StatusCode::NOT_MODIFIED),
        (format!("\"other\", W/{}", tag.to_str().unwrap()), StatusCode::NOT_MODIFIED),
        ("\"other\"".to_owned(), StatusCode::OK),
    ] {
        let url = format!("{}/.well-known/agent-card.json", world.base);
        let answer = world.http.get(url).header("if-none-match", &known).send().await.unwrap();
        assert_eq!(answer.status(), status, "{known}");
    }
    let own: Value = world.document("/agents/single/.well-known/agent-card.json").await;
    assert_eq!(own["name"], "single");
    // Some clients refuse a card with an address that they cannot use.
    for interface in own["supportedInterfaces"].as_array().unwrap() {
        assert_eq!(interface["url"], json!(format!("{}/agents/single", world.base)), "{own}");
    }
    world.end().await;
}

#[tokio::test]
async fn cards_name_grpc_on_demand() {
    for (form, scheme) in [(GrpcAddressForm::Url, "http://"), (GrpcAddressForm::Authority, "")] {
        let world =
            GatewayWorld::with(&[("single", SINGLE)], |options| options.grpc_on_cards = Some(form)).await;
        let grpc = async |path: &str| {
            let url = format!("{}{path}/.well-known/agent-card.json", world.base);
            let card: Value = world.http.get(url).send().await.unwrap().json().await.unwrap();
            card["supportedInterfaces"][2].clone()
        };
        let address = world.base.replace("http://", scheme);
        let (mesh, agent) = (grpc("").await, grpc("/agents/single").await);
        assert_eq!((&mesh["protocolBinding"], &mesh["url"]), (&json!("GRPC"), &json!(address)));
        assert_eq!((&agent["tenant"], &agent["url"]), (&json!("agents/single"), &json!(address)));
        world.end().await;
    }
}

#[tokio::test]
async fn names_that_are_not_exposed_are_absent() {
    let world = GatewayWorld::with(&[("single", SINGLE), ("review", &review())], |options| {
        options.expose = vec!["sin*".to_owned()];
        options.public_url = Some("https://agents.example.com/".to_owned());
    })
    .await;
    let card: Value = world.document("/.well-known/agent-card.json").await;
    assert_eq!(card["skills"].as_array().unwrap().len(), 1, "{card}");
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://agents.example.com/a2a");
    for path in ["/agents/review/.well-known/agent-card.json", "/agents/nobody/.well-known/agent-card.json"] {
        let answer = world.http.get(format!("{}{path}", world.base)).send().await.unwrap();
        assert_eq!(answer.status(), 404);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!((&problem["status"], &problem["code"]), (&json!(404), &json!("SINEW-9003")), "{problem}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_list_says_whose_tasks_it_lacks() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let list = async || world.request(Method::GET, "/a2a/tasks").send().await.unwrap();
    assert!(!list().await.headers().contains_key("sinew-unheard-agents"));
    // A card without anybody behind it.
    let away = Announcement { name: "away".to_owned(), ..Announcement::default() };
    world.mesh.cards().announce(&away.card("test")).await.unwrap();
    let told = async {
        loop {
            let answer = list().await;
            if let Some(named) = answer.headers().get("sinew-unheard-agents") {
                assert_eq!(
                    (answer.status(), named),
                    (StatusCode::OK, &"away".parse::<reqwest::header::HeaderValue>().unwrap())
                );
                return;
            }
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, told).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_list_that_no_agent_answers_is_an_error_and_not_empty() {
    let world =
        GatewayWorld::with(&[("single", SINGLE)], |options| options.expose = vec!["away".to_owned()]).await;
    let away = Announcement { name: "away".to_owned(), ..Announcement::default() };
    world.mesh.cards().announce(&away.card("test")).await.unwrap();
    world.wait_for_card("away").await;
    let answer = world.request(Method::GET, "/a2a/tasks").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"));
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_says_nothing_keeps_no_list_waiting() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let silent = world.connect("silent").await;
    // Takes every request and answers none.
    let calls = silent.services().serve_rpc("silent").await.unwrap();
    let card = Announcement { name: "silent".to_owned(), ..Announcement::default() };
    silent.cards().announce(&card.card("test")).await.unwrap();
    world.wait_for_card("silent").await;
    let list = world.request(Method::GET, "/a2a/tasks").send();
    let answer = tokio::time::timeout(crate::support::PATIENCE, list).await.unwrap().unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["sinew-unheard-agents"]),
        (StatusCode::OK, &"silent".parse().unwrap())
    );
    drop(calls);
    world.end().await;
}

#[tokio::test]
async fn the_card_of_everybody_is_short_and_the_extended_one_is_the_callers() {
    let world = GatewayWorld::with(&[("single", SINGLE), ("review", &review())], |options| {
        options.access.is_required = true;
        options.access.oidc = vec![OidcOptions::new("https://login.example.com/realm", "sinew")];
    })
    .await;
    let (_, whole) = world.key(|_| {}).await;
    let (_, part) = world.key(|new| new.patterns = vec!["sing*".to_owned()]).await;
    let public = world.request(Method::GET, "/.well-known/agent-card.json").send().await.unwrap();
    assert_eq!(public.headers()["cache-control"], "private, max-age=30", "each caller has a card of its own");
    assert_eq!(public.headers()["vary"], "host, authorization, x-api-key");
    let public: Value = public.json().await.unwrap();
    assert_eq!(
        (&public["skills"], &public["capabilities"]["extendedAgentCard"]),
        (&json!([]), &json!(true)),
        "{public}"
    );
    let told = public.to_string();
    assert!(!told.contains("single") && !told.contains("review"), "{told}");
    assert!(
        told.contains("Bearer") && told.contains("https://login.example.com/realm/.well-known"),
        "{told}"
    );
    assert!(public["securityRequirements"].is_array(), "{told}");

    let skills = |card: &Value| -> Vec<String> {
        card["skills"]
            .as_array()
            .unwrap()
            .iter()
            .map(|skill| skill["id"].as_str().unwrap().to_owned())
            .collect()
    };
    for (key, expected) in [(&whole, vec!["review", "single"]), (&part, vec!["single"])] {
        let rest = world.request(Method::GET, "/a2a/extendedAgentCard").bearer_auth(key);
        let rest: Value = rest.send().await.unwrap().json().await.unwrap();
        assert_eq!(skills(&rest), expected, "{rest}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}});
        let rpc = world.request(Method::POST, "/a2a").bearer_auth(key).json(&body);
        let rpc: Value = rpc.send().await.unwrap().json().await.unwrap();
        assert_eq!(rpc["result"], rest);
    }
    let own = world.request(Method::GET, "/agents/single/extendedAgentCard").bearer_auth(&part);
    assert_eq!(own.send().await.unwrap().json::<Value>().await.unwrap()["name"], "single");
    let other = world.request(Method::GET, "/agents/review/extendedAgentCard").bearer_auth(&part);
    assert_eq!(other.send().await.unwrap().status(), 404);
    world.end().await;
}
