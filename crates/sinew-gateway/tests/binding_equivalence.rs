//! One corpus of operations, done by every binding of A2A: the results are the same.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::bindings_support::{BindingClient, TaskBinding};
use crate::scenario_agent::ScenarioAgent;
use crate::support::{GatewayWorld, SINGLE, review};

/// The corpus.
#[derive(Deserialize)]
struct Corpus {
    cases: Vec<CorpusCase>,
}

#[derive(Deserialize)]
struct CorpusCase {
    name: String,
    agent: String,
    steps: Vec<CorpusStep>,
}

/// One operation and what is said about its result.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CorpusStep {
    call: String,
    /// Parameters, or the parts of a message in their place.
    params: Option<Value>,
    message: Option<String>,
    data: Option<Value>,
    to: Option<String>,
    context: Option<String>,
    configuration: Option<Value>,
    expect: Option<Value>,
    absent: Option<String>,
    error: Option<String>,
    /// Refusal of the binding to NATS, which lacks the operation.
    nats_error: Option<String>,
    events: Option<Vec<Value>>,
    meanwhile: Option<Box<CorpusStep>>,
    #[serde(default)]
    save: BTreeMap<String, String>,
}

impl CorpusStep {
    fn params(&self) -> Value {
        if let Some(params) = &self.params {
            return params.clone();
        }
        let part = self.data.as_ref().map_or_else(|| json!({"text": "hello"}), |data| json!({"data": data}));
        let mut message = json!({"messageId": self.message, "role": "ROLE_USER", "parts": [part]});
        for (name, value) in [("taskId", &self.to), ("contextId", &self.context)] {
            if let Some(value) = value {
                message[name] = value.as_str().into();
            }
        }
        let mut params = json!({"message": message});
        if let Some(configuration) = &self.configuration {
            params["configuration"] = configuration.clone();
        }
        params
    }
}

/// Text that was saved, by name; `@` is the binding.
type SavedText = BTreeMap<String, String>;

/// Puts saved text in the place of its name.
fn fill(value: &Value, saved: &SavedText) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('$') {
            Some(name) => saved.get(name).unwrap_or_else(|| panic!("{name} was not saved")).as_str().into(),
            None => text.replace('@', &saved["@"]).into(),
        },
        Value::Array(items) => items.iter().map(|item| fill(item, saved)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), fill(member, saved))).collect()
        }
        other => other.clone(),
    }
}

/// Whether a value holds all that is wanted: further members may be there, further items not.
fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| found.get(name).is_some_and(|found| holds(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| holds(found, wanted))
        }
        _ => found == wanted,
    }
}

/// A result without what differs by binding: ids that follow from messages, times, and members with their default.
fn comparable(value: &Value, saved: &SavedText) -> Option<Value> {
    Some(match value {
        Value::Null | Value::Bool(false) => return None,
        Value::String(text) if text.is_empty() => return None,
        Value::String(text) => {
            let named = saved.iter().filter(|(name, _)| *name != "@");
            let text =
                named.fold(text.clone(), |text, (name, saved)| text.replace(saved, &format!("${name}")));
            text.replace(&saved["@"], "@").into()
        }
        Value::Number(number) if number.as_f64() == Some(0.0) => return None,
        Value::Array(items) if items.is_empty() => return None,
        Value::Array(items) => items.iter().map(|item| comparable(item, saved).unwrap_or_default()).collect(),
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| !is_of_one_task(name));
            let kept: Map<String, Value> =
                kept.filter_map(|(name, member)| Some((name.clone(), comparable(member, saved)?))).collect();
            if kept.is_empty() {
                return None;
            }
            Value::Object(kept)
        }
        other => other.clone(),
    })
}

/// Members whose value belongs to one task alone.
fn is_of_one_task(name: &str) -> bool {
    let ids = ["id", "taskId", "contextId", "messageId", "executionId", "execution_id", "sub_task_id"];
    ids.contains(&name) || ["timestamp", "nextPageToken", "metadata", "sha256"].contains(&name)
}

/// Does a step; gives what is compared between bindings, `None` for a binding that lacks the operation.
async fn perform(
    client: &BindingClient,
    agent: &str,
    step: &CorpusStep,
    saved: &mut SavedText,
) -> Option<Value> {
    let params = fill(&step.params(), saved);
    if let (TaskBinding::Nats, Some(wanted)) = (client.binding(), &step.nats_error) {
        assert_eq!(client.call(agent, &step.call, &params).await.as_ref(), Err(wanted));
        return None;
    }
    let is_stream = matches!(step.call.as_str(), "SendStreamingMessage" | "SubscribeToTask");
    let done = if is_stream {
        let meanwhile = async {
            if let Some(step) = &step.meanwhile {
                let params = fill(&step.params(), saved);
                client.call(agent, &step.call, &params).await.unwrap_or_else(|error| panic!("{error}"));
            }
        };
        client.stream(agent, &step.call, &params, meanwhile).await.map(Value::from)
    } else {
        client.call(agent, &step.call, &params).await
    };
    let found = match (done, &step.error) {
        (Err(reason), Some(wanted)) => {
            assert_eq!(&reason, wanted);
            return Some(reason.into());
        }
        (Err(reason), None) => panic!("refused: {reason}"),
        (Ok(found), Some(wanted)) => panic!("not refused as {wanted}: {found}"),
        (Ok(found), None) => found,
    };
    for (name, pointer) in &step.save {
        let text = found.pointer(pointer).and_then(Value::as_str);
        saved
            .insert(name.clone(), text.unwrap_or_else(|| panic!("nothing at {pointer}: {found}")).to_owned());
    }
    let wanted = step.events.clone().map(Value::from).or_else(|| step.expect.clone());
    if let Some(wanted) = wanted {
        let wanted = fill(&wanted, saved);
        assert!(holds(&found, &wanted), "found {found}\nwanted {wanted}");
    }
    if let Some(absent) = &step.absent {
        let left =
            found.pointer(absent).filter(|left| !matches!(left, Value::Array(left) if left.is_empty()));
        assert_eq!(left, None, "{absent}: {found}");
    }
    Some(comparable(&found, saved).unwrap_or_default())
}

#[tokio::test]
async fn every_binding_gives_the_same_results() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/operations.json");
    let corpus: Corpus = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let world = GatewayWorld::new(&[("single", SINGLE), ("review", &review())]).await;
    world.serve_echo().await;
    ScenarioAgent::serve(world.connect("tck").await, "tck", None).await.unwrap();
    world.wait_for_card("tck").await;
    let clients = BindingClient::all(&world).await;
    assert_eq!(clients.len(), TaskBinding::ALL.len());
    for case in &corpus.cases {
        let mut first: Option<Vec<Option<Value>>> = None;
        for client in &clients {
            println!("{}, by {:?}", case.name, client.binding());
            let mut saved = SavedText::from([("@".to_owned(), format!("by{:?}", client.binding()))]);
            let mut results = Vec::new();
            for step in &case.steps {
                println!("    {} {}", step.call, step.message.as_deref().unwrap_or_default());
                results.push(perform(client, &case.agent, step, &mut saved).await);
            }
            match &first {
                None => first = Some(results),
                Some(first) => {
                    for (result, first) in results.iter().zip(first).filter(|(result, _)| result.is_some()) {
                        assert_eq!(result, first, "{}, by {:?}", case.name, client.binding());
                    }
                }
            }
        }
    }
    world.end().await;
}
