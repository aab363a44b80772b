//! Views of records that the in-process driver made in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sinew_dialects::LowerOptions;
use sinew_documents::execution::{RecordOrigin, WaitKind};
use sinew_documents::execution_filter::{ExecutionFilter, FilteredRow};
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::node::{NodeRow, TreeBranch};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;
use sinew_engine::{ExecutionMode, PersonAnswer, RetryRequest, TaskReply, Time};
use sinew_execution::Call;
use sinew_execution::{Library, Program};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{Fault, Vocabulary};
use sinew_runtime::sim::{Signal, Sim, Stub, Stubbed};
use sinew_source::{Limits, LoadOptions, Variables};

use super::*;
use crate::events::EventWords;
use crate::record::{self, Record, RecordSource};
use crate::timeline::TimelineWindow;
use crate::tree::TreeOptions;
use crate::view_context::{MeshPresence, ViewContext};

const ORDERS: &str = include_str!("../../sinew/tests/fixtures/good/orders.yaml");
const APPROVAL: &str = include_str!("../../sinew/tests/fixtures/test/approval.test.json");

/// Answers by agent, in order; the last one is repeated. `None` = no response.
pub(crate) struct Agents(BTreeMap<&'static str, Vec<Said>>);

/// An answer, or no response.
pub(crate) type Said = Option<Result<Value, &'static str>>;

impl Stub for Agents {
    fn call(&mut self, _now: Time, call: &Call) -> Stubbed {
        let Some(answers) = self.0.get_mut(call.ask.target.name()) else { return Stubbed::Silent };
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        match answer {
            None => Stubbed::Silent,
            Some(Ok(value)) => {
                Stubbed::Answer { after: 1_500, result: Ok(TaskReply::new(value)), progress: Vec::new() }
            }
            Some(Err(why)) => Stubbed::Answer {
                after: 3_000,
                result: Err(Fault::failure("SINEW-5020", why).with_retryable(false)),
                progress: Vec::new(),
            },
        }
    }
}

/// Returns the workflows of a file, and the first of them.
pub(crate) fn loaded(file: &str, text: &str) -> (Library, Program) {
    loaded_with(&[], file, text)
}

/// Returns the same with default agents.
fn loaded_with(named: &[(&str, &str)], file: &str, text: &str) -> (Library, Program) {
    let document = sinew_source::load(
        text.as_bytes(),
        &LoadOptions {
            name: file,
            variables: Variables::Kept,
            read: &|_| Err("none".into()),
            limits: Limits::default(),
        },
    )
    .unwrap();
    let dialect = sinew_dialects::detect(&document).unwrap();
    let options = LowerOptions {
        default_name: file.split('.').next().unwrap(),
        read: &|_| Err("none".into()),
        list: &sinew_dialects::no_list,
        agents: &named.iter().map(|(kind, agent)| ((*kind).to_owned(), (*agent).to_owned())).collect(),
    };
    let workflows = dialect.lower(document, &options).unwrap_or_else(|found| panic!("{found}"));
    let mut library = Library::default();
    let programs: Vec<Program> =
        workflows.into_iter().map(|one| Program::new(one.plan, dialect.adapter()).unwrap()).collect();
    for program in &programs {
        library.insert(program.clone());
    }
    (library, programs.into_iter().next().unwrap())
}

/// Runs a workflow until it is idle, or until a time.
pub(crate) fn ran(
    file: &str,
    text: &str,
    input: Value,
    agents: &[(&'static str, &[Said])],
    signals: &[(Time, Signal)],
    until: Time,
) -> Record {
    ran_with(&[], file, text, input, agents, signals, until)
}

fn ran_with(
    named: &[(&str, &str)],
    file: &str,
    text: &str,
    input: Value,
    agents: &[(&'static str, &[Said])],
    signals: &[(Time, Signal)],
    until: Time,
) -> Record {
    let (library, program) = loaded_with(named, file, text);
    let agents = agents.iter().map(|(name, answers)| (*name, answers.to_vec())).collect();
    let mut sim = Sim::new(Arc::new(library), Agents(agents));
    for (at, signal) in signals {
        sim.signal(*at, signal.clone());
    }
    sim.run(program, input, ExecutionMode::default(), until);
    Record::local(sim.execution())
}

const HOUR: Time = 3_600_000;

/// The context of an execution after an hour, without a mesh.
fn seen(record: &Record) -> ViewContext {
    ViewContext::of(&record.execution, HOUR, &MeshPresence::default())
}

fn failed() -> Record {
    let agents: &[(&str, &[_])] = &[
        ("checker", &[Some(Ok(json!({"kind": "large"})))]),
        ("pricing", &[Some(Ok(json!({"price": 5}))), Some(Err("no price for line 2")), Some(Ok(json!(1)))]),
    ];
    ran("orders.yaml", ORDERS, json!({"lines": [1, 2, 3]}), agents, &[], HOUR)
}

fn asked(signals: &[(Time, Signal)]) -> Record {
    let definition: Value = serde_json::from_str(APPROVAL).unwrap();
    let text = definition["definition"].to_string();
    let agents: &[(&str, &[_])] =
        &[("Writer", &[Some(Ok(json!("draft")))]), ("Editor", &[Some(Ok(json!("done")))])];
    ran("approval.json", &text, json!({}), agents, signals, HOUR)
}

/// A team whose connection has a conversion function, which raises.
fn converted() -> Record {
    let file = json!({
        "nodes": [
            { "id": "t", "type": "TRIGGER", "subtype": "MANUAL" },
            { "id": "s", "type": "EXTERNAL_ACTION", "subtype": "SLACK", "configurations": { "agent": "slack" } },
        ],
        "connections": [{ "id": "c1", "from_node": "t", "to_node": "s", "conversion_function": "lambda d: 1 / 0" }],
    });
    let agents: &[(&str, &[_])] = &[("slack", &[Some(Ok(json!({ "success": true })))])];
    ran("team.json", &file.to_string(), json!({ "n": 1 }), agents, &[], HOUR)
}

#[test]
fn what_went_wrong_without_failing_a_node_is_told() {
    let record = converted();
    let told = describe::describe(&record, HOUR, &MeshPresence::default());
    let warnings: Vec<(Option<&str>, &str)> =
        told.warnings.iter().map(|warning| (warning.node.as_deref(), warning.message.as_str())).collect();
    let raised = "the conversion function of 'c1' raised at line 1: ZeroDivisionError: division by zero; the value \
                  was passed on unconverted";
    assert_eq!(
        warnings,
        [(Some("t"), raised), (Some("s"), "the input member 'message' is required but missing")]
    );
    let text = describe::text(&told, HOUR, false);
    assert!(text.contains("warnings\n  t: the conversion function of 'c1' raised"), "{text}");
}

/// A loop that ends at its maximum, and an agent that answers at a port without an edge.
#[test]
fn loops_at_their_maximum_and_ports_without_an_edge_are_told() {
    let looped = r#"{"workflow": {"description": "d", "nodes": [
        {"id": "again", "type": "loop", "node": "work", "condition": "true", "max_iterations": 2},
        {"id": "work", "type": "agent", "agent_name": "Worker"}], "output_mapping": {"r": "{{again.output}}"}}}"#;
    let canvas = json!({
        "nodes": [{ "id": "s", "type": "chat-start" }, { "id": "a", "type": "agent", "data": { "agent": "Worker" } },
            { "id": "t", "type": "prompt-template", "data": { "template": "x" } }],
        "edges": [{ "source": "s", "target": "a" }, { "source": "a", "target": "t" }],
    });
    for (name, file, answer, node, expected) in [
        ("loop.json", looped.to_owned(), json!({ "n": 1 }), "again", "after its maximum of 2 iterations"),
        (
            "canvas.json",
            canvas.to_string(),
            json!({ "outputs": { "score": 1 } }),
            "a",
            "'score', but edges start at 'output'",
        ),
    ] {
        let answers = [Some(Ok(answer.clone())), Some(Ok(answer))];
        let record = ran(name, &file, json!({}), &[("Worker", &answers)], &[], HOUR);
        let found = describe::warnings(&record.execution);
        let [only] = found.as_slice() else { panic!("{name}: {found:?}") };
        let row = node_rows::rows(&record.execution, HOUR).into_iter().find(|row| row.node == node).unwrap();
        let is_loop = row.kind == "loop";
        let told =
            row.message.is_some_and(|text| text.ends_with("2 ok; ended at its maximum of 2 iterations"));
        assert_eq!(told, is_loop, "{name}");
        assert_eq!(only.node.as_deref(), Some(node), "{name}");
        assert!(only.message.contains(expected), "{name}: {}", only.message);
    }
}

#[test]
fn a_failure_is_told_from_the_outside_in() {
    let record = failed();
    let told = describe::describe(&record, HOUR * 2, &MeshPresence::default());
    assert_eq!(told.status, ExecutionStatus::Failure);
    assert_eq!((told.nodes.total, told.nodes.failed), (4, 1));
    let failure = told.failure.as_ref().unwrap();
    assert_eq!(failure.node.as_deref(), Some("each_line_1"));
    let innermost = failure.chain.last().unwrap();
    assert_eq!(
        (innermost.agent.as_deref(), innermost.fault.message.as_str()),
        (Some("pricing"), "no price for line 2")
    );
    assert!(failure.chain.len() >= 2, "{:#?}", failure.chain);
    assert!(told.next.iter().any(|next| next.ends_with("--dry-run")), "{:?}", told.next);
    assert!(told.waiting.is_empty());
    let text = describe::text(&told, HOUR * 2, false);
    for wanted in
        ["failed at each_line_1", "no price for line 2", "sinew execution retry", "status      failed"]
    {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    let data = serde_json::to_value(&told).unwrap();
    assert_eq!(data["started"], "1970-01-01T00:00:00.000Z");
    assert_eq!(data["failure"]["chain"][0]["message"], json!(failure.chain[0].fault.message));
}

#[test]
fn a_person_who_is_waited_for_comes_first_with_the_question() {
    let record = asked(&[]);
    let told = describe::describe(&record, HOUR, &MeshPresence::default());
    assert_eq!(told.status, ExecutionStatus::Waiting);
    let wait = &told.waiting[0];
    assert_eq!((wait.what, wait.node.as_deref()), (WaitKind::Person, Some("ok")));
    assert!(wait.question.is_some());
    assert!(told.next[0].starts_with("sinew approval approve"), "{:?}", told.next);
    let row = list::execution_row(&record, HOUR);
    assert!(row.waiting.unwrap().starts_with("a person at ok"));
    assert!(tree::head(&record, &seen(&record)).ends_with("1 waiting for a person"));
}

#[test]
fn executions_of_one_process_are_not_sent_to_a_mesh() {
    let yes = PersonAnswer { data: json!("approve"), ..PersonAnswer::default() };
    let approve = (10_000, Signal::Answer(Some("ok".to_owned()), yes));
    let file = || RecordSource::File("my run.json".to_owned());
    let by_mesh = |record: Record| {
        let about = RecordOrigin { caller: "ada".to_owned(), ..RecordOrigin::default() };
        Record { about, ..record.read_from(file()) }
    };
    // `ID` stands for the short id of the execution.
    let check = |record: Record, stopped: bool, expected: &[&str]| {
        let id = words::short_id(record.id()).to_owned();
        let expected: Vec<String> = expected.iter().map(|command| command.replace("ID", &id)).collect();
        let told = describe::describe(&record, HOUR, &MeshPresence::default());
        assert_eq!((&told.next, told.stopped.is_some()), (&expected, stopped), "{:?}", record.source);
    };
    let again = "sinew run FILE --local";
    let again_failed = r#"sinew run FILE --local -i '{"lines":[1,2,3]}'"#;
    let again_answered = "sinew run FILE --local --answer ok=approve";
    check(
        asked(&[]).read_from(RecordSource::Folder),
        true,
        &[again_answered, "sinew execution tree ID --local"],
    );
    check(asked(&[]).read_from(file()), true, &[again_answered, "sinew execution tree 'my run.json'"]);
    let of_mesh = ["sinew approval approve ID --node ok", "sinew execution watch ID"];
    check(by_mesh(asked(&[])), false, &of_mesh);
    check(asked(&[]), false, &of_mesh);
    check(
        failed().read_from(RecordSource::Folder),
        false,
        &[again_failed, "sinew execution tree ID --local"],
    );
    check(failed(), false, &["sinew execution retry ID --dry-run", "sinew execution tree ID"]);
    let ended = || asked(std::slice::from_ref(&approve));
    check(ended().read_from(RecordSource::Folder), false, &["sinew execution result ID --local"]);
    let paused = asked(&[(10, Signal::Pause("lunch".into()))]);
    check(paused.read_from(RecordSource::Folder), true, &[again, "sinew execution tree ID --local"]);
}

#[test]
fn an_execution_whose_process_is_gone_counts_no_further() {
    // The last event is the answer of the writer, after 1.5 seconds.
    let record = asked(&[]).read_from(RecordSource::Folder);
    let told = describe::describe(&record, HOUR, &MeshPresence::default());
    assert_eq!((told.duration_ms, told.stopped), (1_500, Some(Timestamp(1_500))));
    assert_eq!(told.waiting[0].text, "a person");
    let text = describe::text(&told, HOUR, false);
    let line = "stopped     1970-01-01T00:00:01.500Z (59m58s ago); the process that ran it has ended\n";
    assert!(text.contains(line) && text.contains("status      waiting, 1.5s"), "{text}");
    let row = list::execution_row(&record, HOUR);
    let text = list::text(std::slice::from_ref(&row), HOUR, false, false);
    assert!(text.ends_with("1h00m ago  1.5s  stopped: a person at ok: Waiting for user approval"), "{text}");
    assert!(tree::head(&record, &seen(&record)).ends_with("1 waiting for a person, stopped"));
    // In an earlier record the process is still running.
    assert!(!tree::head(&record.until(1), &seen(&record)).contains("stopped"));
}

#[test]
fn the_number_of_an_activation_is_explained() {
    let legend = format!("  {}", node_rows::ACTIVATION_LEGEND);
    let cancel = (1_000, Signal::Cancel("b".into()));
    let retry = (2_000, Signal::Retry(RetryRequest::default()));
    for (signals, is_explained) in [(vec![cancel.clone()], false), (vec![cancel, retry], true)] {
        let record = asked(&signals);
        let branches = tree::tree(&record, &seen(&record), &TreeOptions::default()).unwrap();
        let lines = tree::lines(&branches, tree::TreeStyle::default());
        assert_eq!(lines.last() == Some(&legend), is_explained, "{lines:#?}");
        assert_eq!(lines.iter().any(|line| line.contains("  #2  ")), is_explained, "{lines:#?}");
        // A narrow terminal without attempts shows no legend.
        let narrow = tree::TreeStyle { width: Some(40), ..tree::TreeStyle::default() };
        assert!(!tree::lines(&branches, narrow).contains(&legend));
    }
}

#[test]
fn a_dry_run_is_named() {
    let (library, program) = loaded("orders.yaml", ORDERS);
    let mut sim = Sim::new(Arc::new(library), Agents(BTreeMap::new()));
    let mode = ExecutionMode { dry_run: true, ..ExecutionMode::default() };
    sim.run(program, json!({"lines": []}), mode, HOUR);
    for (record, is_dry) in [(Record::local(sim.execution()), true), (failed(), false)] {
        let told = describe::describe(&record, HOUR, &MeshPresence::default());
        let row = list::execution_row(&record, HOUR);
        let texts =
            [describe::text(&told, HOUR, false), list::text(std::slice::from_ref(&row), HOUR, false, false)];
        let data = [serde_json::to_value(&told).unwrap(), serde_json::to_value(&row).unwrap()];
        let marks = ["dry run     no agent was called, and every output was null", "succeeded (dry run)"];
        for ((text, mark), data) in texts.iter().zip(marks).zip(&data) {
            assert_eq!(text.contains(mark), is_dry, "{text}");
            assert_eq!(data.get("dry_run"), is_dry.then_some(&json!(true)), "{data}");
        }
    }
}

/// Requests that judge, reflect or choose an edge are not attempts, and their agents do not work on the node.
#[test]
fn rows_tell_the_work_of_a_node() {
    let node = |name: &str, rest: Value| {
        let mut node = json!({"name": name, "instruction": "Do it.", "output": {"type": "object"}});
        node.as_object_mut().unwrap().extend(rest.as_object().cloned().unwrap());
        node
    };
    let judged = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({"name": name, "kind": "judge", "rubric": "It is good."})).collect()
    };
    let retry = json!({"max": 1, "instruction": {"auto": true}});
    let workflow = json!({
        "id": "notes", "name": "Notes", "description": "Writes notes.", "entry": "collect",
        "nodes": {
            "collect": node("Collect", json!({})),
            "draft": node("Draft", json!({"eval": judged(&["short", "true"]), "retry": retry})),
            "review": node("Review", json!({"eval": judged(&["fair"])})),
        },
        "edges": [
            {"from": "collect", "to": "draft", "when": "there are changes"},
            {"from": "draft", "to": "review", "when": "there are lines"},
        ],
    });
    let (bad, good) = (json!({"verdict": "no", "reasoning": "too long"}), json!({"verdict": "yes"}));
    let said = |value: &Value| Some(Ok(value.clone()));
    let judge = [said(&bad), said(&good), said(&good), said(&good), said(&bad)];
    let agents: &[(&str, &[_])] = &[
        ("writer", &[said(&json!({"lines": 3}))]),
        ("chooser", &[said(&json!("draft")), said(&json!("review"))]),
        ("critic", &judge),
        ("thinker", &[said(&json!("write less"))]),
    ];
    let named = [("work", "writer"), ("route", "chooser"), ("judge", "critic"), ("reflect", "thinker")];
    let record = ran_with(&named, "notes.json", &workflow.to_string(), json!({}), agents, &[], HOUR);
    let rows = node_rows::rows(&record.execution, HOUR);
    let row = |row: &NodeRow| (row.node.clone(), row.status, row.tries(), row.agent.clone());
    let expected = |name: &str, status, attempts: &str| {
        (name.to_owned(), status, attempts.to_owned(), Some("writer".to_owned()))
    };
    assert_eq!(
        rows.iter().map(row).collect::<Vec<_>>(),
        [
            expected("collect", NodeStatus::Succeeded, "1"),
            expected("draft", NodeStatus::Succeeded, "2"),
            expected("review", NodeStatus::Failed, "1"),
        ],
        "{:#?}",
        describe::describe(&record, HOUR, &MeshPresence::default()).failure
    );
    let told = |name: &str| {
        let act = node_description::find_activation(&record, name).unwrap();
        node_description::describe_node(&record, act, &seen(&record))
    };
    // The input of the work, although two requests followed it.
    assert!(told("draft").input.unwrap().get("choices").is_none());
    assert!(told("draft").instruction.unwrap().contains("Do it."));
}

#[test]
fn an_ended_node_waits_for_no_script() {
    let record = converted();
    let mut behind_ended = 0;
    for round in 0..=record.execution.journal().len() {
        let record = record.until(round);
        let state = record.execution.state();
        behind_ended += sinew_engine::waiting(state)
            .iter()
            .filter(|wait| matches!(wait.what, sinew_engine::WaitingFor::Evaluation))
            .filter(|wait| wait.act.is_some_and(|act| state.act(act).end.is_some()))
            .count();
        for row in node_rows::rows(&record.execution, HOUR).iter().filter(|row| row.status.is_over()) {
            assert_eq!(row.message, None, "round {round}: {row:#?}");
        }
    }
    assert!(behind_ended > 0, "no script was evaluated behind an ended node");
}

#[test]
fn whoever_does_not_answer_is_named_with_since_and_until() {
    let record = ran("orders.yaml", ORDERS, json!({"lines": []}), &[], &[], 5_000);
    let told = describe::describe(&record, 65_000, &MeshPresence::default());
    assert_eq!(told.status, ExecutionStatus::Running);
    let wait = &told.waiting[0];
    assert_eq!((wait.agent.as_deref(), wait.since), (Some("checker"), Timestamp(0)));
    assert!(wait.text.starts_with("agent checker, for 1m05s"), "{}", wait.text);
}

#[test]
fn a_paused_execution_waits_to_be_resumed() {
    let pause = (10, Signal::Pause("lunch".into()));
    let record = ran("orders.yaml", ORDERS, json!({"lines": []}), &[], &[pause], 5_000);
    let told = describe::describe(&record, 6_000, &MeshPresence::default());
    assert_eq!(told.status, ExecutionStatus::Paused);
    assert!(told.waiting.iter().any(|wait| wait.what == WaitKind::Resume && wait.text.contains("lunch")));
    assert!(told.next[0].starts_with("sinew execution resume"));
}

#[test]
fn time_is_told_by_its_kinds() {
    use sinew_documents::timeline::SpanKind;

    use crate::timeline::{TimelineWindow, timeline};
    let yes = PersonAnswer { data: json!("approve"), ..PersonAnswer::default() };
    let approve = (10_000, Signal::Answer(Some("ok".to_owned()), yes));
    let record = asked(&[approve]);
    let told = timeline(&record, HOUR, TimelineWindow::first(100));
    let spans = |node: &str| -> Vec<(SpanKind, Time, Time)> {
        let row =
            told.rows.iter().find(|row| row.node == node).unwrap_or_else(|| panic!("no {node}: {told:#?}"));
        row.spans.iter().map(|span| (span.kind, span.from, span.to)).collect()
    };
    assert_eq!(spans("ok"), [(SpanKind::Person, 1_500, 10_000)]);
    assert_eq!((told.duration_ms, told.more), (11_500, 0), "{told:#?}");
    assert!(told.rows.iter().filter(|row| !row.spans.is_empty()).all(|row| row.critical), "{told:#?}");
    // A window contains the activations of that time.
    let part = timeline(&record, HOUR, TimelineWindow { from: 2_000, to: 5_000, max_rows: 100 });
    let names: Vec<&str> = part.rows.iter().map(|row| row.node.as_str()).collect();
    assert_eq!((names, part.more, part.duration_ms), (vec!["ok"], 0, 11_500), "{part:#?}");
    let map = timeline(&failed(), HOUR, TimelineWindow::first(2));
    assert_eq!((map.rows.len(), map.more > 0), (2, true), "{map:#?}");
    assert_eq!(map.rows[0].spans[0].kind, SpanKind::Agent);
}

#[test]
fn the_critical_path_leads_from_the_start_to_the_end() {
    use crate::timeline::{TimelineWindow, timeline};
    let text = r#"
workflow:
  description: Asks until it is paid
  nodes:
    - {id: check, type: agent, agent_name: checker}
    - {id: beside, type: agent, agent_name: checker}
    - {id: settle, type: loop, depends_on: [check, beside], node: pay, condition: "{{pay.output.state}} == 'pending'", delay: 1s}
    - {id: pay, type: agent, agent_name: payment}
    - {id: audit, type: agent, agent_name: auditor}
  onExit: {always: audit}
  output_mapping: {state: "{{pay.output.state}}"}
"#;
    let said = |value: Value| Some(Ok(value));
    let agents: &[(&str, &[_])] = &[
        ("checker", &[said(json!({}))]),
        ("payment", &[said(json!({"state": "pending"})), said(json!({"state": "paid"}))]),
        ("auditor", &[said(json!({}))]),
    ];
    let record = ran("paid.yaml", text, json!({}), agents, &[], HOUR);
    let told = timeline(&record, HOUR, TimelineWindow::first(100));
    let critical: Vec<&str> =
        told.rows.iter().filter(|row| row.critical).map(|row| row.node.as_str()).collect();
    // The first two end at the same time; one of them is reported.
    assert_eq!(critical, ["beside", "settle", "settle_iter_0", "settle_iter_1", "audit"], "{told:#?}");
}

#[test]
fn trees_fold_and_open() {
    let record = failed();
    let grown = |options: TreeOptions| tree::tree(&record, &seen(&record), &options).unwrap();
    let folded = grown(TreeOptions::default());
    let names = |branches: &[TreeBranch]| branches.iter().map(|one| one.label.clone()).collect::<Vec<_>>();
    assert_eq!(names(&folded), ["check_order", "route", "each_line", "approve"]);
    assert!(folded.iter().all(|one| one.children.is_empty()));
    assert!(folded[2].row.message.as_ref().unwrap().contains("no price"));
    let open = grown(TreeOptions { depth: 9, ..TreeOptions::default() });
    assert_eq!(names(&open[2].children), ["each_line_0", "each_line_1", "each_line_2"]);
    assert_eq!(open[2].children[1].row.status, NodeStatus::Failed);
    let some = grown(TreeOptions { depth: 9, fold: vec![NodeStatus::Succeeded], ..TreeOptions::default() });
    assert!(some[2].children.iter().all(|child| child.row.status != NodeStatus::Succeeded));
    assert_eq!(some[2].folded.get(&NodeStatus::Succeeded), Some(&2));
    let bad = grown(TreeOptions { depth: 9, only: vec![NodeStatus::Failed], ..TreeOptions::default() });
    assert_eq!(
        (names(&bad), names(&bad[0].children)),
        (vec!["each_line".to_owned()], vec!["each_line_1".to_owned()])
    );
    assert_eq!(bad[0].folded.get(&NodeStatus::Succeeded), Some(&2));
    // Parents of matching nodes are included regardless of their status.
    let well = grown(TreeOptions { depth: 9, only: vec![NodeStatus::Succeeded], ..TreeOptions::default() });
    assert_eq!(names(&well), ["check_order", "route", "each_line"]);
    assert_eq!(names(&well[2].children), ["each_line_0", "each_line_2"]);
    let one = grown(TreeOptions { depth: 9, node: Some("each_line_1".into()), ..TreeOptions::default() });
    assert_eq!(names(&one), ["each_line_1"]);
    assert!(
        tree::tree(
            &record,
            &seen(&record),
            &TreeOptions { node: Some("nobody".into()), ..TreeOptions::default() }
        )
        .is_none()
    );
    let lines = tree::lines(&open, tree::TreeStyle::default());
    assert!(lines.iter().any(|line| line.starts_with("✗ ├ each_line_1")), "{lines:#?}");
    let status = lines[0].find("STATUS").unwrap();
    for line in &lines[1..] {
        let at = line.char_indices().nth(status).unwrap().0;
        assert!(line[at..].starts_with(|c: char| c.is_alphabetic()), "columns: {lines:#?}");
    }
}

#[test]
fn events_have_numbers_that_never_change() {
    let record = failed();
    for words in
        [EventWords::Mesh(Vocabulary::Current), EventWords::Mesh(Vocabulary::Spec), EventWords::Facts]
    {
        let all = events::lines(&record, words);
        let rounds = record.execution.journal();
        let half = Record::of(
            record.execution.id().clone(),
            record.plan().clone(),
            &rounds[..rounds.len() / 2],
            RecordOrigin::default(),
            Vec::new(),
        )
        .unwrap();
        let some = events::lines(&half, words);
        assert!(!some.is_empty() && some.len() < all.len());
        assert_eq!(some[..], all[..some.len()]);
        assert!(all.iter().all(|line| !line.line.kind.is_empty() && !line.show().contains('\n')));
    }
    let native = events::lines(&asked(&[]), EventWords::Native);
    assert!(native.iter().any(|line| line.line.event.to_string().contains("ok")), "{native:#?}");
}

#[test]
fn a_dry_retry_lists_what_is_kept_and_what_runs() {
    let record = failed();
    let preview = retry::preview(&record, &RetryRequest::default()).unwrap();
    assert_eq!(preview.keep, ["check_order", "route"]);
    assert_eq!(preview.rerun.keys().collect::<Vec<_>>(), ["each_line"]);
    assert_eq!(preview.untouched, ["approve"]);
    let text = retry::text(&preview, &record);
    assert!(text.starts_with("would keep  check_order, route"), "{text}");
    let refused = RetryRequest { nodes: vec!["check_order".into()], ..RetryRequest::default() };
    assert!(retry::preview(&record, &refused).is_err());
    assert!(retry::preview(&asked(&[]), &RetryRequest::default()).is_err());
    let afresh =
        RetryRequest { input: Some(record.execution.ctx().input().clone()), ..RetryRequest::default() };
    let preview = retry::preview(&record, &afresh).unwrap();
    assert_eq!((preview.keep.len(), preview.rerun.len(), preview.untouched.len()), (0, 1, 0));
    assert_eq!(preview.reset, ["route", "each_line", "approve"]);
}

#[test]
fn what_was_decided_is_decided_again() {
    let yes = PersonAnswer { data: json!("approve"), ..PersonAnswer::default() };
    let no = PersonAnswer { data: json!("reject"), ..PersonAnswer::default() };
    let afresh = RetryRequest { input: Some(json!({})), ..RetryRequest::default() };
    let with_input =
        RetryRequest { nodes: vec!["w".into()], only: true, input: Some(json!({ "topic": "another" })) };
    let records = [
        failed(),
        asked(&[]),
        asked(&[(9_000, Signal::Answer(None, no)), (20_000, Signal::Answer(None, yes))]),
        asked(&[
            (9_000, Signal::Pause("a".into())),
            (10_000, Signal::Resume),
            (11_000, Signal::Cancel("b".into())),
        ]),
        asked(&[(9_000, Signal::Cancel("b".into())), (10_000, Signal::Retry(RetryRequest::default()))]),
        asked(&[(9_000, Signal::Cancel("b".into())), (10_000, Signal::Retry(afresh))]),
        asked(&[(1_000, Signal::Cancel("b".into())), (2_000, Signal::Retry(with_input))]),
    ];
    for record in &records {
        let report = replay::replay(record, true);
        assert_eq!((report.difference, report.decided_again), (None, record.execution.journal().len()));
    }
    // A decision that this version would not make is reported.
    let mut file = records[0].to_json();
    let rounds = file["rounds"].as_array_mut().unwrap();
    let (at, ended) = rounds
        .iter_mut()
        .enumerate()
        .flat_map(|(at, round)| round["facts"].as_array_mut().unwrap().iter_mut().map(move |fact| (at, fact)))
        .find(|(_, fact)| fact["fact"] == "concluded")
        .unwrap();
    ended["outcome"]["fault"]["message"] = "something else".into();
    let changed = record::parse(file.to_string().as_bytes()).unwrap();
    let difference = replay::replay(&changed, true).difference.unwrap();
    assert_eq!(difference.round, at + 1);
    assert_eq!(difference.recorded["outcome"]["fault"]["message"], "something else");
}

#[test]
fn lists_show_what_goes_on_first_and_filter() {
    let mut rows: Vec<ExecutionRow> =
        [failed(), asked(&[])].iter().map(|record| list::execution_row(record, HOUR)).collect();
    rows[0].attributes.labels.insert("team".into(), "a".into());
    list::sort(&mut rows);
    assert_eq!(rows[0].status, ExecutionStatus::Waiting);
    let text = list::text(&rows, HOUR, true, false);
    assert!(text.lines().count() == 3 && text.contains("team=a") && !text.contains("MODELS"), "{text}");
    rows[0].usage =
        ModelTotals { turns: 2, input_tokens: 18_450, cost_usd: Some(0.25), ..ModelTotals::default() };
    let text = list::text(&rows, HOUR, false, false);
    assert!(text.contains("MODELS") && text.contains("2 turns, 18.4k tokens, $0.2500"), "{text}");
    let count = |wanted: ExecutionFilter| {
        rows.iter().filter(|row| wanted.takes(&FilteredRow::from(*row)) == Some(true)).count()
    };
    assert_eq!(count(ExecutionFilter::default()), 2);
    assert_eq!(
        count(ExecutionFilter { status: vec![ExecutionStatus::Failure], ..ExecutionFilter::default() }),
        1
    );
    assert_eq!(
        count(ExecutionFilter { labels: vec![("team".into(), "b".into())], ..ExecutionFilter::default() }),
        0
    );
    assert_eq!(count(ExecutionFilter { since: Some(1), ..ExecutionFilter::default() }), 0);
    assert_eq!(count(ExecutionFilter { workflow: vec!["orders".into()], ..ExecutionFilter::default() }), 1);
}

/// The fixtures of transcripts equal the records of the driver; `UPDATE=1` writes them.
#[test]
fn fixtures_are_what_the_driver_makes() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sinew/tests/fixtures/record");
    for (name, record) in [("failed.json", failed()), ("waiting.json", asked(&[]))] {
        let made = serde_json::to_string(&record.to_json()).unwrap() + "\n";
        let file = folder.join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &made).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), made, "{name}");
    }
}

/// The console reads what the API writes.
#[test]
fn documents_are_read_as_they_were_written() {
    fn check<T: Serialize + DeserializeOwned>(document: &T) {
        let written = serde_json::to_string(document).unwrap();
        let read: T = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
    }
    let all = TreeOptions { depth: 3, ..TreeOptions::default() };
    for record in [failed(), asked(&[]), converted()] {
        let context = seen(&record);
        check(&describe::describe(&record, HOUR, &MeshPresence::default()));
        check(&list::execution_row(&record, HOUR));
        check(&tree::tree(&record, &context, &all));
        check(&timeline::timeline(&record, HOUR, TimelineWindow::first(100)));
        check(&agent_work::agent_work(&record, HOUR));
        check(&diff::compare(&failed(), &record, HOUR, None));
        for act in 0..record.execution.state().acts.len() as u32 {
            check(&node_description::describe_node(&record, act, &context));
        }
        for event in events::lines(&record, EventWords::Facts) {
            check(&event.line);
        }
    }
    check(&retry::preview(&failed(), &RetryRequest::default()).unwrap());
}
