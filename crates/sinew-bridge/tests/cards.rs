//! Cards that change, vanish, move and need credentials.

use serde_json::json;
use sinew_agent::CancellationToken;
use sinew_bridge::serve_bridges;

use crate::fake_agent::FakeAgent;
use crate::world::{BridgeWorld, PATIENCE, connect, output};

#[tokio::test(flavor = "multi_thread")]
async fn a_card_is_mirrored_refreshed_and_taken_back() {
    let fake = FakeAgent::start("JSONRPC", true).await;
    let world = BridgeWorld::bare().await;
    let cards = world.mesh.cards().follow();
    let description = |wanted: Option<&'static str>| {
        let cards = &cards;
        async move {
            let waiting = async {
                loop {
                    let found = cards.get("outside").map(|found| found.card.description.clone());
                    if found.as_deref() == wanted {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            };
            assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "the card never says {wanted:?}");
        }
    };
    world.serve(&format!("name: outside\ncard: {}\nrefresh: 1s\n", fake.base)).await;
    description(Some("does what it is told")).await;
    fake.record(|record| record.description = "does more".to_owned());
    description(Some("does more")).await;
    fake.record(|record| record.card_status = 503);
    description(None).await;
    fake.record(|record| record.card_status = 200);
    description(Some("does more")).await;
    let echoed = world.ask("outside", "m1", json!({"text": "echo again"})).await;
    assert_eq!(output(&echoed)["text"], "again");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_cannot_be_served_keep_none_of_the_others_off() {
    let world = BridgeWorld::bare().await;
    let (absent, silent, changed, good) = (
        FakeAgent::start("JSONRPC", true).await,
        FakeAgent::start("JSONRPC", true).await,
        FakeAgent::start("JSONRPC", true).await,
        FakeAgent::start("JSONRPC", true).await,
    );
    absent.record(|record| record.card_status = 404);
    silent.record(|record| record.card_status = 0);
    // A status that ends `Bridge::open`, as a card that is not trusted does.
    changed.record(|record| record.card_status = 410);
    let settings = [
        ("absent", &absent),
        ("silent", &silent),
        ("changed", &changed),
        ("good", &good),
        ("good", &good),
        ("refused", &good),
    ]
    .map(|(name, fake)| world.settings(&format!("name: {name}\ncard: {}\nrefresh: 1s\n", fake.base)));
    let stop = CancellationToken::new();
    let admit = |name: String| async move {
        if name == "refused" { Err("the name of a workflow".to_owned()) } else { Ok(()) }
    };
    let own = connect(&world.url(), "bridge", "test").await;
    let serving = tokio::spawn(serve_bridges(settings.to_vec(), own, admit, stop.clone()));
    world.is_announced("good").await;
    let echoed = world.ask("good", "m1", json!({"text": "echo hello"})).await;
    assert_eq!(output(&echoed)["text"], "hello");
    changed.until("the card is asked for", |record| record.card_requests > 0).await;
    for fake in [&absent, &changed] {
        fake.record(|record| record.card_status = 200);
    }
    world.is_announced("absent").await;
    world.is_announced("changed").await;
    let cards = world.mesh.cards().follow();
    cards.wait_for("good").await;
    assert!(cards.get("refused").is_none());
    // The stop comes while cards are fetched: for the first time, and again.
    good.record(|record| record.card_status = 0);
    let seen = good.record(|record| record.card_requests);
    good.until("the card is looked at", |record| record.card_requests > seen).await;
    assert!(silent.record(|record| record.card_requests) > 0);
    stop.cancel();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), serving).await;
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_to_other_hosts_carry_no_credentials() {
    let (fake, other) = (FakeAgent::start("JSONRPC", true).await, FakeAgent::start("JSONRPC", true).await);
    let world = BridgeWorld::bare().await;
    std::fs::write(world.folder().join("key"), "s3cret").unwrap();
    let text = format!(
        "name: outside\ncard: {}\ncredentials: {{api_key: {{header: X-Key, value: {{file: key}}}}}}\n",
        fake.base
    );
    let moved = format!("{}/moved-agent-card.json", other.base);
    fake.record(|record| record.card_location = Some(moved.clone()));
    // The other host is not public, and the operator did not name it: it is not asked at all.
    let opening = tokio::time::timeout(std::time::Duration::from_secs(3), world.open(&text)).await;
    assert!(!matches!(opening, Ok(Ok(_))), "a card of a host that nobody named was taken");
    assert_eq!(other.record(|record| record.card_requests), 0);
    fake.record(|record| assert!(record.headers.iter().all(|headers| headers["x-key"] == "s3cret")));
    // Named by the operator, it is asked, with the credentials.
    let named = format!("{text}hosts: [{}]\n", other.base);
    let opened = world.open(&named).await;
    assert!(opened.is_ok(), "{opened:?}");
    assert_eq!(other.record(|record| record.headers[0]["x-key"].clone()), "s3cret");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_fetched_renewed_and_missing_ones_are_told() {
    let fake = FakeAgent::start("HTTP+JSON", false).await;
    let world = BridgeWorld::bare().await;
    for (name, secret) in [("id", "the id"), ("secret", "the:secret")] {
        std::fs::write(world.folder().join(name), secret).unwrap();
    }
    let text = format!(
        "name: outside\ncard: {0}\ncredentials:\n  client_credentials:\n    token_url: {0}/token\n    \
         client_id: {{file: id}}\n    client_secret: {{file: secret}}\n    scopes: [a, b]\n",
        fake.base
    );
    world.serve(&text).await;
    fake.record(|record| {
        assert_eq!(record.headers[0]["authorization"], "Basic dGhlJTIwaWQ6dGhlJTNBc2VjcmV0");
        record.wanted = Some("Bearer token-2".to_owned());
    });
    // The first token is refused, so a second one is fetched.
    let echoed = world.ask("outside", "m1", json!({"text": "echo in"})).await;
    assert_eq!(output(&echoed)["text"], "in", "{echoed:#}");
    assert_eq!((fake.record(|record| record.tokens), fake.most_of_one_message()), (2, 1));
    fake.record(|record| record.wanted = Some("Bearer never".to_owned()));
    let refused = world.ask("outside", "m2", json!({"text": "echo out"})).await;
    assert!(refused.to_string().contains("SINEW-9039"), "{refused:#}");
    assert!(!refused.to_string().contains("token-"), "{refused:#}");
    let missing =
        format!("name: other\ncard: {}\ncredentials: {{bearer: {{env: SINEW_TEST_NOT_SET}}}}\n", fake.base);
    assert_eq!(world.open(&missing).await.unwrap_err().code(), "SINEW-9039");
    world.end().await;
}
