//! Bridges that die in the middle, and answers that get lost.

use serde_json::json;

use crate::fake_agent::FakeAgent;
use crate::world::{BridgeWorld, SINGLE, output};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_bridge_is_followed_by_one_that_takes_the_task_up() {
    for (word, streams) in [("hold", true), ("hold", false), ("slow", true), ("slow", false)] {
        let fake = FakeAgent::start("JSONRPC", streams).await;
        let world = BridgeWorld::with_workflows(&[("single", SINGLE)]).await;
        let text = format!("name: outside\ncard: {}\n", fake.base);
        let mut first = world.killable(&text).await;
        let input = json!({"data": {"text": word}});
        let asking = world.ask("single", "m1", input);
        let killing = async {
            fake.until("the message arrives", |record| record.messages.len() == 1).await;
            if word == "hold" && !streams {
                // The id is in the log before the task is asked for: the card, the message, the question.
                fake.until("the task is asked for", |record| record.headers.len() >= 3).await;
            }
            first.kill();
            fake.record(|record| record.is_released = true);
            let second = world.killable(&text).await;
            let seen = fake.record(|record| record.headers.len());
            fake.until("the task is asked for again", |record| record.headers.len() > seen).await;
            fake.finish_all();
            second
        };
        let (task, _second) = tokio::join!(asking, killing);
        assert_eq!(output(&task)["text"], "held to the end", "{word}, {streams}: {task:#}");
        assert_eq!(
            fake.record(|record| record.messages.clone()).into_values().collect::<Vec<_>>(),
            [1],
            "{word}"
        );
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_an_answer_is_looked_for_and_never_sent_again() {
    let fake = FakeAgent::start("JSONRPC", false).await;
    let world = BridgeWorld::bare().await;
    world.serve(&format!("name: outside\ncard: {}\n", fake.base)).await;
    let finding = world.ask("outside", "m1", json!({"text": "drop"}));
    let finishing = async {
        fake.until("the task is asked for", |record| record.headers.len() >= 4).await;
        fake.finish_all();
    };
    let (found, ()) = tokio::join!(finding, finishing);
    assert_eq!(output(&found)["text"], "held to the end", "{found:#}");
    let lost = world.ask("outside", "m2", json!({"text": "vanish"})).await;
    assert!(lost.to_string().contains("SINEW-9037"), "{lost:#}");
    assert_eq!(fake.most_of_one_message(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_fate_is_open_is_never_sent_again() {
    let world = BridgeWorld::bare().await;
    let check = async |name: &str, binding: &'static str| {
        let fake = FakeAgent::start(binding, false).await;
        world.serve(&format!("name: {name}\ncard: {}\n", fake.base)).await;
        // 503, which proxies answer too, and an error of a gateway whose agent was silent.
        for word in ["unavailable", "unanswered"] {
            let asked = fake.record(|record| record.headers.len());
            let id = format!("{word}-1");
            let finding = world.ask(name, &id, json!({"text": word}));
            let finishing = async {
                fake.until("the task is looked for", |record| record.headers.len() >= asked + 2).await;
                fake.finish_all();
            };
            let (found, ()) = tokio::join!(finding, finishing);
            assert_eq!(output(&found)["text"], "held to the end", "{name}, {word}: {found:#}");
            let unlisted = json!({"text": format!("{word} unlisted")});
            let lost = world.ask(name, &format!("{word}-2"), unlisted).await;
            assert!(lost.to_string().contains("SINEW-9037"), "{name}, {word}: {lost:#}");
        }
        // An error that comes before any work: the message was not taken, so there is no task to look for.
        let full = world.ask(name, "full", json!({"text": "full"})).await;
        assert!(full.to_string().contains("SINEW-9035"), "{name}: {full:#}");
        assert_eq!(fake.most_of_one_message(), 1, "{name}");
        // So does a gateway that answers as many requests as it may.
        let late = world.ask(name, "crowded", json!({"text": "crowded hello"})).await;
        assert_eq!(output(&late)["text"], "hello", "{name}: {late:#}");
    };
    tokio::join!(check("by-rpc", "JSONRPC"), check("by-paths", "HTTP+JSON"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_again_where_the_agent_recognises_it() {
    let fake = FakeAgent::start("HTTP+JSON", false).await;
    let world = BridgeWorld::bare().await;
    world.serve(&format!("name: outside\ncard: {}\nresend: true\n", fake.base)).await;
    let lost = world.ask("outside", "m1", json!({"text": "vanish"})).await;
    assert!(lost.to_string().contains("SINEW-9037"), "{lost:#}");
    let messages = fake.record(|record| record.messages.clone());
    assert_eq!(messages.len(), 1, "the same message each time: {messages:?}");
    assert!(fake.most_of_one_message() > 1, "{messages:?}");
    world.end().await;
}
