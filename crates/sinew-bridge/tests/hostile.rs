//! Outside agents that answer what they must not.

use serde_json::json;

use crate::fake_agent::FakeAgent;
use crate::world::BridgeWorld;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_answers_end_in_an_error_with_a_code() {
    let world = BridgeWorld::bare().await;
    let streaming = FakeAgent::start("JSONRPC", true).await;
    let plain = FakeAgent::start("JSONRPC", false).await;
    for (name, fake) in [("streaming", &streaming), ("plain", &plain)] {
        world.serve(&format!("name: {name}\ncard: {}\n", fake.base)).await;
    }
    for (name, word, expected) in [
        ("streaming", "endless-line", "SINEW-9034"),
        ("streaming", "endless-comments", "SINEW-9034"),
        ("streaming", "foreign", "SINEW-9034"),
        ("streaming", "endless-body", "SINEW-9034"),
        ("plain", "endless-body", "SINEW-9034"),
        ("plain", "garbage", "SINEW-9034"),
        ("plain", "wrong-id", "SINEW-9034"),
        ("plain", "twice", "SINEW-9034"),
        ("plain", "wrong-type", "SINEW-9034"),
        ("plain", "redirect", "SINEW-9034"),
        ("plain", "no-id", "SINEW-9034"),
        ("plain", "mystery", "SINEW-9034"),
        ("plain", "refuse", "SINEW-9035"),
    ] {
        let task = world.ask(name, word, json!({"text": word})).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{word}: {task:#}");
        assert!(task.to_string().contains(expected), "{word}: {task:#}");
    }
    for fake in [&streaming, &plain] {
        assert_eq!(fake.most_of_one_message(), 1);
    }
    let good = world.ask("plain", "after", json!({"text": "echo on"})).await;
    assert_eq!(good["status"]["state"], "TASK_STATE_COMPLETED", "{good:#}");
    world.end().await;
}
