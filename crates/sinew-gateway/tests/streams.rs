//! Streams: in order, without gap or repeat, from any number, over any gateway.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{EventSource, GatewayWorld, SINGLE, SseEvent, held, message};

fn seqs(events: &[SseEvent]) -> Vec<u64> {
    events.iter().map(|(seq, _)| seq.unwrap()).collect()
}

async fn subscribe(world: &GatewayWorld, base: &str, id: &str, last: Option<u64>) -> EventSource {
    let mut request =
        world.http.post(format!("{base}/a2a/tasks/{id}:subscribe")).header("A2A-Version", "1.0");
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last.to_string());
    }
    EventSource::of(request.send().await.unwrap())
}

#[tokio::test]
async fn a_workflow_is_followed_to_its_end_and_from_any_event() {
    let (world, begun, go_on) = held(&[("single", SINGLE)]).await;
    let mut params = message("m", json!([{"data": {"value": "v"}}]));
    params["metadata"] = json!({"skill": "single"});
    let response = world.request(Method::POST, "/a2a/message:stream").json(&params).send().await.unwrap();
    let mut first = EventSource::of(response);
    let (seq, snapshot) = first.next().await.unwrap();
    let id = snapshot["task"]["id"].as_str().unwrap().to_owned();
    begun.notified().await;
    // Another gateway goes on in the middle.
    let other = world.gateway(|_| {}).await;
    let other_base = format!("http://{}", other.address());
    let joined = subscribe(&world, &other_base, &id, None).await;
    go_on.notify_one();
    let mut events = first.all().await;
    events.insert(0, (seq, snapshot));
    let numbers = seqs(&events);
    let (from, to) = (numbers[0], *numbers.last().unwrap());
    assert_eq!(numbers, (from..=to).collect::<Vec<_>>(), "no gap, no repeat");
    let (_, last) = events.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{last}");
    let artifact = events.iter().find_map(|(_, event)| event.get("artifactUpdate")).unwrap();
    assert_eq!(artifact["artifact"]["parts"][0]["data"], json!({"value": "v"}));
    let joined = joined.all().await;
    assert!(joined[0].1.get("task").is_some(), "{:?}", joined[0]);
    for (seq, event) in &joined[1..] {
        let same = events.iter().find(|(number, _)| number == seq);
        assert_eq!(Some(event), same.map(|(_, event)| event), "{seq:?}");
    }
    // From every number, also after the end, at either gateway.
    for (base, last) in
        [&world.base, &other_base].into_iter().flat_map(|base| (0..to).map(move |last| (base, last)))
    {
        let resumed = subscribe(&world, base, &id, Some(last)).await.all().await;
        assert_eq!(seqs(&resumed), (last + 1..=to).collect::<Vec<_>>(), "behind {last}");
        let known: Vec<&SseEvent> = events.iter().skip(1).filter(|(seq, _)| seq.unwrap() > last).collect();
        assert!(resumed.ends_with(&known.into_iter().cloned().collect::<Vec<_>>()), "behind {last}");
    }
    other.drain().await;
    world.end().await;
}

#[tokio::test]
async fn many_streams_hear_the_same_while_executors_change() {
    let (mut world, begun, go_on) = held(&[("single", SINGLE)]).await;
    let mut params = message("m", json!([{"data": {"value": "v"}}]));
    params["configuration"] = json!({"returnImmediately": true});
    let sent = world.rpc("/agents/single", "SendMessage", &params).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    begun.notified().await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = subscribe(&world, &world.base, &id, None).await;
        let (seq, snapshot) = stream.next().await.unwrap();
        assert_eq!(snapshot["task"]["id"], json!(id));
        streams.push((seq.unwrap(), stream));
    }
    world.replace_executor().await;
    go_on.notify_one();
    let mut heard: Option<Vec<SseEvent>> = None;
    for (first, stream) in streams {
        let events = stream.all().await;
        let expected: Vec<u64> = (first + 1..=first + events.len() as u64).collect();
        assert_eq!(seqs(&events), expected, "no gap, no repeat");
        assert_eq!(events.last().unwrap().1["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
        // Streams may begin at different events; they end with the same.
        let known = heard.get_or_insert_with(|| events.clone());
        let common = known.len().min(events.len());
        assert_eq!(known[known.len() - common..], events[events.len() - common..]);
    }
    world.end().await;
}

#[tokio::test]
async fn an_agent_is_followed_to_its_end() {
    let (world, begun, go_on) = held(&[]).await;
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "SendStreamingMessage",
                      "params": message("m", json!([{"data": {"value": "v"}}]))});
    let response = world.request(Method::POST, "/a2a").json(&call).send().await.unwrap();
    let mut stream = EventSource::of(response);
    let (seq, first) = stream.next().await.unwrap();
    let id = first["result"]["task"]["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("one."), "{id}");
    begun.notified().await;
    let mut joined = subscribe(&world, &world.base, &id, None).await;
    let (joined_seq, snapshot) = joined.next().await.unwrap();
    assert_eq!(snapshot["task"]["id"], json!(id));
    go_on.notify_one();
    let (told, heard) = (stream.all().await, joined.all().await);
    assert!(told.iter().any(|(_, event)| event.to_string().contains("half")), "{told:?}");
    for (before, events, pointer) in [(seq, &told, "/result"), (joined_seq, &heard, "")] {
        let from = before.unwrap() + 1;
        let expected: Vec<u64> = (from..from + events.len() as u64).collect();
        assert_eq!(seqs(events), expected);
        let last: &Value = events.last().unwrap().1.pointer(pointer).unwrap();
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{last}");
        assert_eq!(last["statusUpdate"]["taskId"], json!(id));
    }
    world.end().await;
}

#[tokio::test]
async fn a_gateway_that_stops_says_how_to_go_on() {
    let (mut world, begun, go_on) = held(&[("single", SINGLE)]).await;
    let response = world
        .request(Method::POST, "/agents/single/message:stream")
        .json(&message("m", json!([{"data": {"value": "v"}}])));
    let mut stream = EventSource::of(response.send().await.unwrap());
    let (mut last, first) = stream.next().await.unwrap();
    let id = first["task"]["id"].as_str().unwrap().to_owned();
    begun.notified().await;
    let gateway = world.take_gateway();
    let draining = tokio::spawn(gateway.drain());
    while let Some((seq, _)) = stream.next().await {
        last = seq;
    }
    let hint = format!("the gateway is shutting down; subscribe again with Last-Event-ID: {}", last.unwrap());
    assert_eq!(stream.comments, [hint]);
    draining.await.unwrap();
    let next = world.gateway(|_| {}).await;
    let resumed = subscribe(&world, &format!("http://{}", next.address()), &id, last).await;
    go_on.notify_one();
    let events = resumed.all().await;
    assert_eq!(events[0].0, last.map(|last| last + 1), "no gap and no repeat: {events:?}");
    assert_eq!(events.last().unwrap().1["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    next.drain().await;
    world.end().await;
}

#[tokio::test]
async fn a_running_task_is_cancelled() {
    let (world, begun, _go_on) = held(&[("single", SINGLE)]).await;
    for (name, endpoint) in [("workflow", "/agents/single"), ("agent", "/agents/one")] {
        let mut params = message(name, json!([{"data": {"value": "v"}}]));
        params["configuration"] = json!({"returnImmediately": true});
        let sent = world.rpc(endpoint, "SendMessage", &params).await;
        let task = &sent["result"]["task"];
        begun.notified().await;
        let answer =
            world.request(Method::POST, &format!("{endpoint}/tasks/{}:cancel", task["id"].as_str().unwrap()));
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{name}");
        let task: Value = answer.json().await.unwrap();
        assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{name} {task}");
    }
    world.end().await;
}
