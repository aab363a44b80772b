//! Conversations within conversations, waits without a transcript, functions of the program, recordings.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_agents::{
    Agent, AgentCase, AgentSet, Call, ConversationEnd, ConversationRecording, EffectClass, HostTool,
    HostTools, LocalPeers, MemorySteps, People, PersonPrompt, PersonReply, StepAppend, StepBody, StepRecord,
    Steps,
};
use sinew_model::script::ModelScript;
use sinew_protocol::Fault;

use crate::fixture::{Fixture, told};

/// An agent with a scripted model.
fn scripted(answers: &Value, more: &Value) -> Fixture {
    let price = json!({"input": 1, "output": 1});
    let models = json!({"main": {"provider": "script", "answers": answers, "price": price}});
    let mut run = json!({"use": ["main"], "models": models, "instruction": "You lead."});
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Fixture::file(&json!({"name": "x", "run": {"model": run}}))
}

/// A log outside the process, as far as the conversation can tell.
#[derive(Default)]
struct OuterSteps {
    log: MemorySteps,
    reads: AtomicU32,
}

impl OuterSteps {
    fn with(records: &[StepRecord]) -> Arc<Self> {
        Arc::new(Self { log: MemorySteps::with(records.to_vec()), reads: AtomicU32::new(0) })
    }

    async fn records(&self) -> Vec<StepRecord> {
        self.log.read().await.unwrap()
    }
}

impl Steps for OuterSteps {
    fn read(&self) -> BoxFuture<'_, Result<Vec<StepRecord>, Fault>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.log.read()
    }

    fn append(&self, place: u64, record: StepRecord) -> BoxFuture<'_, Result<StepAppend, Fault>> {
        self.log.append(place, record)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A lead with a finder below, and a librarian below that: each knows its own words only.
fn team() -> Fixture {
    scripted(
        &json!([
            {"when": "Look into books", "text": "The book says Friday."},
            {"when": "subagent:Librarian", "text": "Friday, says the book."},
            {"when": "Find facts", "call": {"subagent_librarian_m": {"task": "Which day?"}}},
            {"when": "subagent:Fact finder!", "text": "On Friday."},
            {"call": {"subagent_fact_finder_k": {"task": "When?"}}},
        ]),
        &json!({"tools": [{"request": {"subagents": true}}], "budget": {"cost_usd": 1.0}}),
    )
}

fn team_call(team: &Fixture, steps: Arc<OuterSteps>) -> Call {
    let mut call = team.input(json!({"text": "When does it arrive?"}));
    call.conversation = Some("lead".to_owned());
    call.steps = Some(steps);
    call.context = json!({"task": "t1", "attempt": 1, "request": {"subagents": [
        {"nodeId": "k", "agentName": "Fact finder!", "systemPrompt": "Find facts.", "subagents": [
            {"nodeId": "m", "agentName": "Librarian", "systemPrompt": "Look into books."},
        ]},
    ]}});
    call
}

#[tokio::test]
async fn agents_below_an_agent_are_conversations_in_its_log() {
    let team = team();
    let steps = OuterSteps::with(&[]);
    let reply = team.agent.call(team_call(&team, Arc::clone(&steps))).await.unwrap();
    assert_eq!(reply.output, json!({"text": "On Friday."}));
    assert_eq!(
        (&reply.usage["turns"], &reply.usage["children"]["turns"]),
        (&json!(2), &json!(3)),
        "{}",
        reply.usage
    );
    let told: Vec<String> = reply
        .events
        .iter()
        .filter(|event| event["type"].as_str().unwrap().starts_with("subagent"))
        .map(|event| {
            format!("{} {} {}", event["type"].as_str().unwrap(), event["subagentName"], event["depth"])
        })
        .collect();
    let line = |kind: &str, name: &str, depth: u32| format!("subagent_call_{kind} \"{name}\" {depth}");
    assert_eq!(
        told,
        [
            line("start", "Fact finder!", 1),
            line("start", "Librarian", 2),
            line("end", "Librarian", 2),
            line("end", "Fact finder!", 1),
        ]
    );
    let whole = steps.records().await;
    let turns = |records: &[StepRecord]| {
        records.iter().filter(|one| matches!(one.body, StepBody::Turn { .. })).count()
    };
    assert_eq!(turns(&whole), 5);
    // A process that dies behind any record is followed by one that asks for no recorded turn again.
    for records in 1..whole.len() {
        let steps = OuterSteps::with(&whole[..records]);
        let mut call = team_call(&team, Arc::clone(&steps));
        call.delivery = 2;
        let again = team.agent.call(call).await.unwrap();
        assert_eq!(
            (&again.output, turns(&steps.records().await)),
            (&reply.output, 5),
            "behind {records} records"
        );
    }
}

#[tokio::test]
async fn agents_below_fail_within_the_budget_above() {
    let endless = |more: Value| {
        let answers = json!([
            {"when": "You lead", "call": {"subagent_agent_k": {"task": "go"}}},
            {"call": {"unknown": {}}},
        ]);
        let mut keys = json!({"tools": [{"request": {"subagents": true}}]});
        keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        scripted(&answers, &keys)
    };
    for (more, ends) in [
        (json!({}), "SINEW-5207"),
        (json!({"budget": {"input_tokens": 900}}), "SINEW-5208"),
        (json!({"budget": {"cost_usd": 0.0005}}), "SINEW-5208"),
    ] {
        let team = endless(more.clone());
        let mut call = team.input(json!({"text": "go"}));
        call.context = json!({"request": {"subagents": [{"nodeId": "k", "systemPrompt": "Work."}]}});
        let fault = team.agent.call(call).await.unwrap_err();
        assert_eq!(fault.code, ends, "{more}: {}", told(&fault));
    }
    // Without the word of the file nothing of a request becomes a tool.
    let plain =
        scripted(&json!([{"call": {"subagent_agent_k": {"task": "go"}}}, {"text": "no"}]), &json!({}));
    let mut call = plain.input(json!({"text": "go"}));
    call.context = json!({"request": {"subagents": [{"nodeId": "k"}]}});
    assert_eq!(plain.agent.call(call).await.unwrap().output, json!({"text": "no"}));
}

/// A person who answers after most of an hour, and may do something before that.
struct SlowPerson<F>(F);

impl<F: Fn() -> BoxFuture<'static, ()> + Send + Sync> People for SlowPerson<F> {
    fn ask(&self, _: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        async move {
            tokio::time::sleep(Duration::from_mins(50)).await;
            (self.0)().await;
            Ok(PersonReply { approved: true, by_person: "ada".to_owned(), comment: Some("blue".to_owned()) })
        }
        .boxed()
    }
}

/// A person who allows everything and keeps the questions.
#[derive(Default)]
struct ListeningPerson(Mutex<Vec<String>>);

impl People for ListeningPerson {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        self.0.lock().unwrap().push(prompt.text);
        std::future::ready(Ok(PersonReply { approved: true, ..PersonReply::default() })).boxed()
    }
}

#[tokio::test]
async fn agents_of_one_process_ask_the_people_of_their_caller() {
    let pays = json!({"name": "Cashier", "run": {"model": {
        "use": ["main"],
        "models": {"main": {"provider": "script", "answers": [{"when": "receipt", "text": "paid"}, {"call": {"pay": {}}}]}},
        "tools": [{"script": {"name": "pay", "source": "def pay(args):\n    return 'receipt'"}, "effect": "once", "approve": true}],
    }}});
    let mut others = AgentSet::default();
    let path = std::path::Path::new("cashier.agent.json");
    others.add(Agent::from_text(path, &pays.to_string()).unwrap()).unwrap();
    let lead = scripted(
        &json!([{"when": "paid", "text": "Done."}, {"call": {"peer_Cashier": {"text": "pay"}}}]),
        &json!({"tools": [{"peer": "Cashier"}]}),
    );
    let person = Arc::new(ListeningPerson::default());
    let mut call = lead.input(json!({"text": "go"}));
    call.people = person.clone();
    call.peers = Arc::new(LocalPeers::new(others, lead.artifacts.clone()).with_people(person.clone()));
    assert_eq!(lead.agent.call(call).await.unwrap().output, json!({"text": "Done."}));
    let asked = person.0.lock().unwrap().clone();
    assert_eq!(asked, ["Cashier: May the agent call pay? The agent file asks for approval."]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_waits_is_folded_again_from_its_log() {
    let asker = scripted(
        &json!([
            {"when": "blue", "text": "It is blue."},
            {"call": {"ask_person": {"question": "Which colour?"}}},
        ]),
        &json!({"tools": [{"builtin": ["ask_person"]}]}),
    );
    let call = |steps: &Arc<OuterSteps>, person: Arc<dyn People>| {
        let mut call = asker.input(json!({"text": "What colour?"}));
        call.steps = Some(Arc::clone(steps) as Arc<dyn Steps>);
        call.people = person;
        call
    };
    let steps = OuterSteps::with(&[]);
    let nothing = || std::future::ready(()).boxed();
    let reply = asker.agent.call(call(&steps, Arc::new(SlowPerson(nothing)))).await.unwrap();
    assert_eq!(reply.output, json!({"text": "It is blue."}));
    assert_eq!(reply.usage["turns"], json!(2), "{}", reply.usage);
    assert_eq!(steps.reads.load(Ordering::Relaxed), 1, "the log is read when the person has answered");

    // Another process has taken the conversation up in between.
    let steps = OuterSteps::with(&[]);
    let other = Arc::clone(&steps);
    let intrude = move || {
        let other = Arc::clone(&other);
        async move {
            let records = other.records().await;
            let record = StepRecord { by: "other".to_owned(), ..records[0].clone() };
            other.append(records.len() as u64, record).await.unwrap();
        }
        .boxed()
    };
    let call = call(&steps, Arc::new(SlowPerson(intrude)));
    let used = Arc::clone(&call.usage);
    let fault = asker.agent.call(call).await.unwrap_err();
    assert_eq!(fault.code, "SINEW-5210", "{}", told(&fault));
    assert_eq!(used.lock().unwrap()["turns"], 1, "what was used before the wait is known");
}

#[tokio::test(start_paused = true)]
async fn failed_conversations_tell_what_they_used() {
    let agent = scripted(
        &json!([{"call": {"time": {}}}, {"error": {"status": 503}}]),
        &json!({"tools": [{"builtin": ["time"]}]}),
    );
    let mut agent_call = agent.input(json!({"text": "go"}));
    agent_call.conversation = Some("c".to_owned());
    let used = Arc::clone(&agent_call.usage);
    let fault = agent.agent.call(agent_call).await.unwrap_err();
    assert_eq!(fault.code, "SINEW-5202", "{}", told(&fault));
    let used = used.lock().unwrap().clone();
    assert_eq!((&used["turns"], &used["cumulative"]), (&json!(1), &json!(true)), "{used}");
    assert!(used["cost_usd"].as_f64().unwrap() > 0.0, "{used}");
}

/// Functions of a program that note who called them.
#[derive(Default)]
struct Functions(Mutex<Vec<String>>);

impl HostTools for Functions {
    fn list(&self) -> Vec<HostTool> {
        let parameters =
            json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
        let tool = |name: &str, effect| HostTool {
            name: name.to_owned(),
            description: "A function.".to_owned(),
            parameters: parameters.clone(),
            effect,
        };
        vec![tool("look", EffectClass::Read), tool("send", EffectClass::Once)]
    }

    fn call(&self, name: &str, arguments: Value, key: &str) -> BoxFuture<'_, Result<Value, Fault>> {
        assert!(!key.is_empty());
        self.0.lock().unwrap().push(format!("{name} {}", arguments["id"].as_str().unwrap()));
        std::future::ready(Ok(json!({"state": "moving"}))).boxed()
    }
}

#[tokio::test]
async fn functions_of_the_program_are_tools() {
    let agent = scripted(
        &json!([{"call": {"look": {"id": "A-17"}}}, {"call": {"look": {}}}, {"call": {"send": {"id": "A-17"}}}, {"text": "done"}]),
        &json!({}),
    );
    let functions = Arc::new(Functions::default());
    let mut call = agent.input(json!({"text": "go"}));
    call.tools = Some(functions.clone());
    let steps = OuterSteps::with(&[]);
    call.steps = Some(steps.clone());
    assert_eq!(agent.agent.call(call).await.unwrap().output, json!({"text": "done"}));
    assert_eq!(*functions.0.lock().unwrap(), ["look A-17", "send A-17"], "arguments are checked first");
    let records = steps.records().await;
    let begun = records.iter().filter(|record| matches!(record.body, StepBody::Call(_))).count();
    assert_eq!(begun, 1, "a function that acts is recorded before it is called");
}

#[tokio::test]
async fn a_recording_replays_and_tells_where_a_question_differs() {
    let answers =
        json!([{"call": {"total": {"a": [1, 2]}}}, {"answer": {"text": "It is 3."}, "usage": {"input": 7}}]);
    let tool = json!({"script": {"name": "total", "input_schema": {"type": "object"}, "source": "lambda args: sum(args['a'])"}});
    let agent = scripted(&answers, &json!({"tools": [tool.clone()]}));
    let recording = Arc::new(ConversationRecording::default());
    let mut call = agent.input(json!({"text": "1 + 2?"}));
    call.recording = Some(Arc::clone(&recording));
    agent.agent.call(call).await.unwrap();
    let case = recording.take_case(json!({"name": "n", "input": {"text": "1 + 2?"}})).unwrap();
    assert_eq!(case["expect"], json!({"output": {"text": "It is 3."}, "calls": ["total"]}));
    assert_eq!(case["tools"]["total"], json!([{"output": 3}]));
    assert_eq!(recording.take_case(json!({})), None);

    let play = |agent: &Fixture, script: &Value| {
        let case = AgentCase {
            input: json!({"text": "1 + 2?"}),
            instruction: None,
            output_schema: None,
            context: Value::Null,
            begun_at: case["begun_at"].as_u64(),
            script: ModelScript::read(script.as_array().unwrap()).unwrap(),
            tools: std::collections::BTreeMap::new(),
            peers: Vec::new(),
            people_allow: false,
            crash_everywhere: true,
        };
        let outcome = agent.agent.rehearse(&case).unwrap().unwrap();
        assert_eq!(outcome.crash, None);
        outcome.rehearsal.end().unwrap().clone()
    };
    assert_eq!(play(&agent, &case["model"]), ConversationEnd::Output(json!({"text": "It is 3."})));
    let other = scripted(&answers, &json!({"tools": [tool], "instruction": "You follow."}));
    let ConversationEnd::Fault(fault) = play(&other, &case["model"]) else { panic!("it has an output") };
    let want = "the question differs from the recorded one:\n- /system/0: recorded \"You lead.\", requested \"You follow.\"";
    assert_eq!((&*fault.code, fault.message.as_str()), ("SINEW-5202", want));
}
