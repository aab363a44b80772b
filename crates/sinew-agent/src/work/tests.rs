//! A handler and one task, without a mesh.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use sinew_protocol::{ExecutionId, TaskId};

use super::*;
use crate::agent::Agent;
use crate::task_properties::TaskProperties;

fn schema(kind: &str) -> Value {
    json!({ "type": kind })
}

/// An agent that returns these results in turn: a value, or a fault for `{"fault": …}`.
fn saying(says: Vec<Value>) -> Agent {
    let calls = AtomicU32::new(0);
    Agent::dynamic("test", Some(schema("integer")), Some(schema("string")), move |_, context: Context| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        assert_eq!(call, context.retry(), "a handler knows how often it was called");
        assert_eq!(call == 0, context.feedback().is_empty(), "and what was wrong before");
        let said = says[call as usize].clone();
        async move {
            match said.get("fault") {
                Some(message) => Err(Failure::new(message.as_str().unwrap())),
                None => Ok(said),
            }
        }
    })
}

async fn end(agent: Agent, input: Value) -> (EndedTask, Context) {
    let context = Context::detached("test");
    let agent = agent.compiled().unwrap();
    (work(&agent, &input, &context, &CancellationToken::new()).await.unwrap(), context)
}

#[tokio::test]
async fn inputs_and_outputs_are_checked_and_outputs_tried_again() {
    // Outputs of the handler in turn, retries, the input; then the output or the code, and the
    // number of retries.
    type Case<'a> = (Vec<Value>, u32, Value, Result<Value, &'a str>, u32);
    let cases: [Case<'_>; 7] = [
        (vec![json!("fine")], 0, json!(1), Ok(json!("fine")), 0),
        (vec![], 3, json!("no integer"), Err(BAD_INPUT), 0),
        (vec![json!(1)], 0, json!(1), Err(BAD_OUTPUT), 0),
        (vec![json!(1), json!(2), json!("fine")], 2, json!(1), Ok(json!("fine")), 2),
        (vec![json!(1), json!(2), json!(3)], 2, json!(1), Err(BAD_OUTPUT), 2),
        (vec![json!({"fault": "no"}), json!("late")], 2, json!(1), Err(FAILED), 0),
        (vec![json!(1), json!({"fault": "no"})], 2, json!(1), Err(FAILED), 1),
    ];
    for (says, retries, input, want, made) in cases {
        let what = format!("{says:?} {input}");
        let (ended, context) = end(saying(says).output_retries(retries), input).await;
        assert_eq!(ended.retries, made, "{what}");
        match (ended.result, want) {
            (Ok(reference), Ok(value)) => {
                let bytes = context.artifacts().get(reference.name.as_str(), reference.version).unwrap();
                assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), value, "{what}");
            }
            (Err(fault), Err(code)) => {
                assert_eq!(fault.code, code, "{what}");
                let violated = [BAD_INPUT, BAD_OUTPUT].contains(&code);
                assert_eq!(fault.details.is_empty(), !violated, "{what}");
            }
            (found, want) => panic!("{what}: {found:?} instead of {want:?}"),
        }
    }
}

#[tokio::test]
async fn checks_that_take_too_long_are_faults() {
    let schema = json!({"items": {"allOf": vec![json!({"type": "integer"}); 2_000]}});
    let numbers: Value = (0..5_000).collect();
    for (input, output) in [(Some(schema.clone()), None), (None, Some(schema.clone()))] {
        let agent = Agent::dynamic("test", input, output, async |input, _| Ok(input));
        let (ended, _) = end(agent.output_retries(3), numbers.clone()).await;
        assert_eq!(ended.result.map_err(|fault| fault.code), Err(sinew_source::CHECK_BUDGET_EXCEEDED.into()));
        assert_eq!(ended.retries, 0, "the same output would take as long");
    }
}

#[tokio::test]
async fn a_request_brings_its_own_schemas() {
    let agent = || {
        Agent::dynamic("test", Some(schema("integer")), Some(schema("string")), async |input, _| Ok(input))
    };
    let execution = ExecutionId::of("a", "b", "c");
    let about = TaskProperties {
        input_schema: Some(schema("boolean")),
        output_schema: Some(schema("boolean")),
        ..TaskProperties::new("test", execution.clone(), TaskId::parse("t").unwrap())
    };
    let broken = TaskProperties { output_schema: Some(json!({"type": 7})), ..about.clone() };
    let run = async |about: &TaskProperties, input: Value| {
        let context = Context::new(about.clone(), CancellationToken::new(), None, None);
        let agent = agent().compiled().unwrap();
        let ended = work(&agent, &input, &context, &CancellationToken::new()).await.unwrap();
        ended.result.map_err(|fault| fault.code.into_owned()).map(drop)
    };
    assert_eq!(run(&about, json!(true)).await, Ok(()));
    assert_eq!(run(&about, json!(1)).await, Err(BAD_INPUT.to_owned()));
    assert_eq!(run(&broken, json!(true)).await, Err(BAD_OUTPUT.to_owned()));
}

#[tokio::test]
async fn types_are_their_own_schemas() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct In {
        n: u8,
    }
    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Out {
        twice: u16,
    }
    let agent = || Agent::new("test", async |input: In, _| Ok(Out { twice: u16::from(input.n) * 2 }));
    let announced = agent().announcement();
    let input = announced.input_schema.unwrap();
    assert_eq!(input["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(input["required"], json!(["n"]));
    assert_eq!(announced.output_schema.unwrap()["properties"]["twice"]["maximum"], 65_535);
    assert!(end(agent(), json!({"n": 200})).await.0.result.is_ok());
    for input in [json!({"n": 300}), json!({}), json!([]), Value::Null] {
        assert_eq!(end(agent(), input.clone()).await.0.result.unwrap_err().code, BAD_INPUT, "{input}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_whatever_its_handler_does() {
    let forever = || Agent::dynamic("test", None, None, async |_, _| std::future::pending().await);
    let code = async |agent: Agent| end(agent, Value::Null).await.0.result.unwrap_err();
    let late = code(forever().timeout(Duration::from_secs(3))).await;
    assert_eq!((late.code.as_ref(), late.kind), (TOO_LATE, FaultKind::Timeout));

    let polite = Agent::dynamic("test", None, None, async |_, context: Context| {
        context.cancel().cancelled().await;
        Ok(json!("too late to count"))
    });
    assert_eq!(code(polite.timeout(Duration::from_secs(3))).await.code, TOO_LATE);

    let panics = Agent::dynamic("test", None, None, async |_, _| panic!("with a secret"));
    let fault = code(panics).await;
    assert_eq!((fault.code.as_ref(), fault.kind), (PANICKED, FaultKind::Error));
    assert!(!fault.to_string().contains("secret"));
    let at_once = Agent::dynamic("test", None, None, |_, _| -> std::future::Ready<_> { panic!("at once") });
    assert_eq!(code(at_once).await.code, PANICKED);

    let agent = forever().compiled().unwrap();
    let (context, halt) = (Context::detached("test"), CancellationToken::new());
    let given_up = async {
        tokio::task::yield_now().await;
        context.cancel().cancel();
    };
    let (ended, ()) = tokio::join!(work(&agent, &Value::Null, &context, &halt), given_up);
    assert_eq!(ended.unwrap().result.unwrap_err().code, CANCELLED);
    let again = work(&agent, &Value::Null, &context, &halt).await.unwrap();
    assert_eq!(again.result.unwrap_err().code, CANCELLED, "nobody begins what is given up");
    halt.cancel();
    assert_eq!(work(&agent, &Value::Null, &Context::detached("test"), &halt).await, Err(GivenUp::Stopping));
}

#[tokio::test]
async fn a_deadline_counts_before_the_agents_own_limit() {
    let agent =
        Agent::dynamic("test", None, None, async |_, _| Ok(Value::Null)).timeout(Duration::from_mins(1));
    let agent = agent.compiled().unwrap();
    let left = |deadline: Option<SystemTime>| {
        let about = TaskProperties { deadline, ..Context::detached("test").about().clone() };
        time_left(&agent, &Context::new(about, CancellationToken::new(), None, None))
    };
    let now = SystemTime::now();
    assert_eq!(left(None), Duration::from_mins(1));
    assert_eq!(left(Some(now + Duration::from_mins(10))), Duration::from_mins(1));
    assert!(left(Some(now + Duration::from_secs(10))) <= Duration::from_secs(10));
    assert_eq!(left(Some(now - Duration::from_secs(1))), Duration::ZERO);
}

#[tokio::test]
async fn a_models_last_message_names_the_output() {
    // The last message; then the output or the code, and the number of retries, at most one.
    let cases = [
        ("«result:artifact=good.json status=success»", Ok(json!("good")), 0),
        ("draft «result:artifact=bad.json» done «result:artifact=good.json:v1»", Ok(json!("better")), 0),
        ("no marker", Err(NO_MARKER), 1),
        ("«result:status=success»", Err(NO_MARKER), 1),
        ("«result:artifact=../x»", Err(NO_MARKER), 1),
        ("«result:artifact=other.json»", Err(ARTIFACTS), 0),
        ("«result:artifact=good.json:v7»", Err(ARTIFACTS), 0),
        ("«result:artifact=number.json»", Err(BAD_OUTPUT), 1),
        ("«result:artifact=text.json»", Err(BAD_OUTPUT), 1),
        ("«result:status=failure message=\"cannot\"»", Err(FAILED), 0),
    ];
    for (text, want, retries) in cases {
        let agent = Agent::model("test", None, Some(schema("string")), async |text, context: Context| {
            let artifacts = context.artifacts();
            if context.retry() == 0 {
                artifacts.put_json("good.json", &json!("good"))?;
                artifacts.put_json("good.json", &json!("better"))?;
                artifacts.put_json("number.json", &json!(1))?;
                artifacts.put("text.json", "application/json", "no json")?;
            }
            let text = text.as_str().unwrap_or_default().to_owned();
            // Without a version, the first case refers to the first version.
            Ok(text.replace("good.json status", "good.json:0 status"))
        });
        let (ended, context) = end(agent.output_retries(1), json!(text)).await;
        assert_eq!(ended.retries, retries, "{text}");
        let found = ended.result.map_err(|fault| fault.code.into_owned()).map(|reference| {
            let bytes = context.artifacts().get(reference.name.as_str(), reference.version).unwrap();
            serde_json::from_slice::<Value>(&bytes).unwrap()
        });
        assert_eq!(found, want.map_err(str::to_owned), "{text}");
    }
}
