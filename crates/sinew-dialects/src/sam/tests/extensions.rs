//! Approvals, sleeps and handled failures.

use serde_json::{Value, json};
use sinew_engine::{InputRefusal, PersonAnswer, TaskReply, TaskRequest};
use sinew_protocol::Fault;
use sinew_source::Severity;

use super::super::adapter::SamAdapter;
use super::lower;
use crate::testing::{Bench, Stubbed};

/// Starts a workflow of these nodes.
fn bench(nodes: &Value, mapping: &Value) -> Bench {
    let definition = json!({"name": "WF", "max_workflow_execution_time_seconds": 1000, "workflow": {
        "description": "A", "nodes": nodes, "output_mapping": mapping,
    }});
    let mut lowered = lower(&definition).unwrap_or_else(|found| panic!("{found}"));
    Bench::new(lowered.remove(0).plan, &SamAdapter)
}

/// Agents return their name; those that are called `Broken…` fail.
fn stub(_: &str, ask: &TaskRequest) -> Stubbed {
    let name = ask.target.name();
    let is_broken = name.starts_with("Broken") || ask.input["fail"] == true;
    let result = if is_broken {
        Err(Fault::failure("SINEW-5001", format!("{name} is broken")))
    } else {
        Ok(TaskReply::new(json!({ "name": name, "input": *ask.input })))
    };
    Stubbed { after: 1, progress: Vec::new(), result }
}

fn answer(approved: Option<bool>, data: Value, by: &str, comment: Option<&str>) -> PersonAnswer {
    let comment = comment.map(str::to_owned);
    PersonAnswer { data, by: Some(by.to_owned()), comment, approved, timed_out: false }
}

fn asked(bench: &Bench) -> Vec<&str> {
    bench.asked.iter().map(|(node, _)| node.as_str()).collect()
}

/// Returns the output, or the message of the fault; `None` while it runs.
fn outcome(bench: &Bench) -> Option<Result<Value, String>> {
    let outcome = bench.state().outcome.as_ref()?;
    Some(match &outcome.fault {
        Some(fault) => Err(format!("{}: {}", fault.code, fault.message)),
        None => Ok(outcome.output.as_ref().map(|output| Value::clone(output)).unwrap_or_default()),
    })
}

/// An approval with these settings, a node after it, and one for rejections.
fn approval(settings: &Value) -> Bench {
    let mut node = json!({"id": "ok", "type": "approval", "prompt": "Pay {{workflow.input.n}}?"});
    node.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let mut nodes =
        vec![node, json!({"id": "pay", "type": "agent", "agent_name": "Pay", "depends_on": ["ok"]})];
    if settings.as_object().unwrap().values().any(|way| way == "refuse") {
        nodes.push(json!({"id": "refuse", "type": "agent", "agent_name": "Refuse", "depends_on": ["ok"]}));
    }
    let mut bench = bench(&json!(nodes), &json!({"ok": "{{ok.output}}"}));
    bench.start(json!({"n": 5}), &mut stub);
    assert_eq!(asked(&bench), [] as [&str; 0], "nothing runs before the decision");
    bench
}

#[test]
fn only_an_approval_leads_on() {
    let refused = || Err("SINEW-6303: Node 'ok' failed: rejected by bob: too dear".to_owned());
    let output = |approved: bool, comment: Value, data: Value| {
        Ok(json!({"ok": {"approved": approved, "by": "bob", "comment": comment, "data": data}}))
    };
    for (settings, given, ran, expected) in [
        (
            json!({}),
            (Some(true), json!("approve"), None),
            &["pay"][..],
            output(true, json!(null), json!(null)),
        ),
        (
            json!({}),
            (Some(true), json!({"limit": 3}), None),
            &["pay"],
            output(true, json!(null), json!({"limit": 3})),
        ),
        (json!({}), (None, json!("yes: fine"), None), &["pay"], output(true, json!("fine"), json!(null))),
        (json!({}), (Some(false), json!("reject"), Some("too dear")), &[], refused()),
        (json!({}), (Some(false), json!({"limit": 3}), Some("too dear")), &[], refused()),
        (json!({}), (None, json!({"decision": "reject", "note": "too dear"}), None), &[], refused()),
        // Data that rejects overrides an approval.
        (json!({}), (Some(true), json!({"approved": false}), Some("too dear")), &[], refused()),
        (json!({"on_reject": "fail"}), (Some(false), json!(null), Some("too dear")), &[], refused()),
        (
            json!({"on_reject": "refuse"}),
            (Some(false), json!("reject"), Some("no")),
            &["refuse"],
            output(false, json!("no"), json!(null)),
        ),
        (
            json!({"on_reject": "refuse"}),
            (Some(true), json!("approve"), None),
            &["pay"],
            output(true, json!(null), json!(null)),
        ),
        (
            json!({"on_reject": "continue"}),
            (Some(false), json!("reject"), Some("no")),
            &["pay"],
            output(false, json!("no"), json!(null)),
        ),
    ] {
        let mut bench = approval(&settings);
        let (approved, data, comment) = given;
        bench.answer_as(answer(approved, data.clone(), "bob", comment), &mut stub);
        assert_eq!(asked(&bench), ran, "{settings} {data}");
        assert_eq!(outcome(&bench), Some(expected), "{settings} {data}");
        bench.restart();
    }
}

#[test]
fn unclear_answers_keep_the_question_open() {
    let mut bench = approval(&json!({}));
    for unclear in
        [json!("maybe"), json!("nope"), json!("not yet"), json!({"limit": 5}), json!(1), json!(null)]
    {
        bench.answer_as(answer(None, unclear.clone(), "bob", None), &mut stub);
        assert_eq!((outcome(&bench), bench.state().waiting().count()), (None, 1), "{unclear}");
    }
    bench.answer_as(answer(None, json!("no"), "bob", None), &mut stub);
    assert_eq!(outcome(&bench), Some(Err("SINEW-6303: Node 'ok' failed: rejected by bob".to_owned())));
}

#[test]
fn the_time_limit_fails_rejects_or_leads_elsewhere() {
    let late = || Err("SINEW-6302: Node 'ok' failed: nobody decided within 5m".to_owned());
    let output = json!({"ok": {
        "approved": false, "by": null, "comment": "nobody decided within 5m", "data": null,
    }});
    for (settings, ran, expected) in [
        (json!({"due": "5m"}), &[][..], late()),
        (json!({"due": "5m", "on_reject": "refuse"}), &[], late()),
        (json!({"due": "5m", "on_due": "reject"}), &[], late()),
        (json!({"due": "5m", "on_due": "reject", "on_reject": "refuse"}), &["refuse"], Ok(output.clone())),
        (json!({"due": "5m", "on_due": "refuse"}), &["refuse"], Ok(output)),
    ] {
        let mut bench = approval(&settings);
        bench.next_timer(&mut stub);
        assert_eq!(asked(&bench), ran, "{settings}");
        assert_eq!(outcome(&bench), Some(expected), "{settings}");
    }
}

#[test]
fn several_people_approve_or_one_rejects() {
    let mut bench = approval(&json!({"approvals": 2, "due": "5m", "data": {"n": "{{workflow.input.n}}"}}));
    let question = |bench: &Bench| {
        let act = bench.state().waiting().next().expect("it waits");
        let wait = bench.state().act(act).wait.as_deref().cloned().expect("it has a question");
        (wait.prompt, Value::clone(&wait.data))
    };
    assert_eq!(question(&bench), ("Pay 5? (0 of 2 approvals)".to_owned(), json!({"n": 5})));
    bench.answer_as(answer(Some(true), json!("approve"), "ada", None), &mut stub);
    assert_eq!(question(&bench), ("Pay 5? (1 of 2 approvals: ada)".to_owned(), json!({"n": 5})));
    let act = bench.state().waiting().next().unwrap();
    let again =
        sinew_engine::EngineInput::Answer { act, answer: answer(Some(true), json!("approve"), "ada", None) };
    let refused = bench.input(again, &mut stub);
    assert_eq!(refused, Err(InputRefusal::AlreadyApproved("ada".to_owned())));
    bench.restart();
    bench.answer_as(answer(Some(true), json!({"limit": 1}), "bob", Some("ok then")), &mut stub);
    let approvals = json!([
        {"by": "ada", "comment": null, "data": null}, {"by": "bob", "comment": "ok then", "data": {"limit": 1}},
    ]);
    let output = json!({
        "approved": true, "by": "bob", "comment": "ok then", "data": {"limit": 1}, "approvals": approvals,
    });
    assert_eq!(outcome(&bench), Some(Ok(json!({ "ok": output }))));
    assert_eq!(asked(&bench), ["pay"]);

    let mut bench = approval(&json!({"approvals": 2}));
    bench.answer_as(answer(Some(true), json!("approve"), "ada", None), &mut stub);
    bench.answer_as(answer(Some(false), json!("reject"), "ada", Some("I erred")), &mut stub);
    assert_eq!(
        outcome(&bench),
        Some(Err("SINEW-6303: Node 'ok' failed: rejected by ada: I erred".to_owned()))
    );
}

/// The time of a question is not that of work: neither of the node nor of the execution.
#[test]
fn people_may_take_longer_than_the_execution() {
    let mut bench = approval(&json!({"due": "2h"}));
    assert_eq!(outcome(&bench), None);
    bench.next_timer(&mut stub);
    let late = "SINEW-6302: Node 'ok' failed: nobody decided within 2h".to_owned();
    assert_eq!(outcome(&bench), Some(Err(late)), "not the 1000 s of the execution");
}

/// A question reminds once, at a time before its due time, and stays open.
#[test]
fn questions_remind_people_before_the_due_time() {
    let mut bench = approval(&json!({"due": "2h", "reminder": "30m", "approvals": 2}));
    bench.answer_as(answer(Some(true), json!(null), "ada", None), &mut stub);
    bench.next_timer(&mut stub);
    assert_eq!((bench.reminded.as_slice(), outcome(&bench)), (&[5_400_000][..], None));
    bench.answer_as(answer(None, json!("hm"), "bob", None), &mut stub);
    bench.next_timer(&mut stub);
    let late = "SINEW-6302: Node 'ok' failed: nobody decided within 2h".to_owned();
    assert_eq!((bench.reminded.len(), outcome(&bench)), (1, Some(Err(late))));
    // A decision before the reminder ends it.
    let mut bench = approval(&json!({"due": "2h", "reminder": "30m"}));
    bench.answer_as(answer(Some(true), json!(null), "ada", None), &mut stub);
    assert_eq!((bench.state().ended, asked(&bench), bench.reminded.len()), (true, vec!["pay"], 0));
}

#[test]
fn a_condition_that_reads_the_decision_handles_rejections() {
    let nodes = json!([
        {"id": "ok", "type": "approval", "prompt": "Pay?", "allowed": ["ada", "{{workflow.input.others}}"]},
        {"id": "way", "type": "switch", "depends_on": ["ok"], "default": "refuse",
         "cases": [{"when": "{{ok.output.approved}}", "then": "pay"}]},
        {"id": "pay", "type": "agent", "agent_name": "Pay", "depends_on": ["way"]},
        {"id": "refuse", "type": "agent", "agent_name": "Refuse", "depends_on": ["way"]},
    ]);
    for (approved, ran) in [(true, "pay"), (false, "refuse")] {
        let mut bench = bench(&nodes, &json!({}));
        bench.start(json!({"others": ["bob", "cy"]}), &mut stub);
        let act = bench.state().waiting().next().unwrap();
        let allowed = bench.state().act(act).wait.as_ref().unwrap().allowed.clone();
        assert_eq!(allowed, ["ada", "bob", "cy"]);
        bench.answer_as(answer(Some(approved), json!(null), "ada", Some("so")), &mut stub);
        assert_eq!((asked(&bench), outcome(&bench)), (vec![ran], Some(Ok(json!({})))));
    }
    let mut bench = bench(&nodes, &json!({}));
    bench.start(json!({"others": []}), &mut stub);
    assert!(outcome(&bench).unwrap().unwrap_err().contains("empty list"), "nobody is not everybody");
}

#[test]
fn failures_may_be_handled() {
    let node = |id: &str, agent: &str, depends: &[&str], more: &Value| {
        let mut node = json!({"id": id, "type": "agent", "agent_name": agent, "depends_on": depends,
            "input": {"of": id}});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let other = node("other", "Other", &[], &json!({}));
    let error = "{{a.error.message}}";
    for (agent, handling, ran, output) in [
        ("Broken", json!({"continue_on_error": true}), vec!["a", "other", "b"], json!("Broken is broken")),
        ("Fine", json!({"continue_on_error": true}), vec!["a", "other", "b"], json!(null)),
        ("Broken", json!({"on_error": "fix"}), vec!["a", "other", "fix"], json!("Broken is broken")),
        ("Fine", json!({"on_error": "fix"}), vec!["a", "other", "b"], json!(null)),
    ] {
        let mut nodes = vec![
            node("a", agent, &[], &handling),
            other.clone(),
            node("b", "B", &["a", "other"], &json!({"input": {"error": error, "output": "{{a.output}}"}})),
        ];
        if handling.get("on_error").is_some() {
            nodes.push(node("fix", "Fix", &["a"], &json!({"input": {"error": error}})));
        }
        let mut bench = bench(&json!(nodes), &json!({"error": error}));
        bench.start(json!({}), &mut stub);
        assert_eq!(
            (asked(&bench), outcome(&bench)),
            (ran, Some(Ok(json!({ "error": output })))),
            "{agent} {handling}"
        );
        bench.restart();
    }
    // Without handling, the same failure fails the execution.
    let mut bench = bench(&json!([node("a", "Broken", &[], &json!({}))]), &json!({}));
    bench.start(json!({}), &mut stub);
    assert_eq!(outcome(&bench), Some(Err("SINEW-5001: Node 'a' failed: Broken is broken".to_owned())));
}

/// A node that waits for both ways runs after either; any other node needs the success.
#[test]
fn ways_merge_where_a_node_waits_for_both() {
    let agent = |id: &str, name: &str, depends: &[&str]| json!({"id": id, "type": "agent", "agent_name": name, "depends_on": depends, "input": {}});
    for (name, ran) in
        [("Broken", &["a", "other", "fix", "both"][..]), ("Fine", &["a", "other", "next", "both"])]
    {
        let mut first = agent("a", name, &[]);
        first["on_error"] = json!("fix");
        let nodes = json!([
            first, agent("other", "Other", &[]), agent("fix", "Fix", &["a"]),
            agent("next", "Next", &["a", "other"]), agent("both", "Both", &["a", "fix", "other"]),
            {"id": "join", "type": "join", "wait_for": ["next", "both"], "strategy": "any"},
        ]);
        let mut bench = bench(&nodes, &json!({"join": "{{join.output.completed_nodes}}"}));
        bench.start(json!({}), &mut stub);
        let mut asked = asked(&bench);
        asked.sort_unstable();
        let mut ran = ran.to_vec();
        ran.sort_unstable();
        assert_eq!(asked, ran, "{name}");
        assert!(outcome(&bench).unwrap().is_ok(), "{name}");
    }
}

#[test]
fn maps_tolerate_failed_items() {
    let items = |failing: &[usize], count: usize| -> Value {
        (0..count).map(|n| json!({"n": n, "fail": failing.contains(&n)})).collect()
    };
    let run = |tolerate: Option<Value>, handled: bool, items: &Value| {
        let mut map = json!({"id": "m", "type": "map", "items": "{{workflow.input.items}}", "node": "one"});
        if let Some(tolerate) = tolerate {
            map["tolerate"] = tolerate;
        }
        let one = json!({"id": "one", "type": "agent", "agent_name": "One", "continue_on_error": handled,
            "input": {"fail": "{{item.fail}}", "n": "{{item.n}}"}});
        let mut bench = bench(
            &json!([map, one]),
            &json!({
                "errors": {"coalesce": ["{{m.output.errors}}"]}, "results": "{{m.output.results}}",
            }),
        );
        bench.start(json!({ "items": items }), &mut stub);
        outcome(&bench).expect("it ends").map(|mut output| {
            let results = output["results"].as_array().unwrap();
            let numbers: Vec<Value> = results.iter().map(|one| one["input"]["n"].clone()).collect();
            output["results"] = numbers.into();
            output
        })
    };
    let error = |index: usize| json!({"index": index, "error": {"code": "SINEW-5001", "kind": "failure", "message": "One is broken"}});
    assert_eq!(
        run(Some(json!(1)), false, &items(&[1], 3)),
        Ok(json!({"results": [0, null, 2], "errors": [error(1)]}))
    );
    assert_eq!(run(Some(json!("5%")), false, &items(&[], 2)), Ok(json!({"results": [0, 1], "errors": []})));
    assert_eq!(run(Some(json!("5%")), false, &items(&[], 0)), Ok(json!({"results": [], "errors": []})));
    let many = run(Some(json!("34%")), false, &items(&[0, 2], 3)).unwrap_err();
    assert_eq!(
        many,
        "SINEW-5001: Node 'm' failed: 2 of 3 items failed, and 34% may fail; 'm_0': One is broken"
    );
    assert_eq!(run(None, true, &items(&[1], 2)), Ok(json!({"results": [0, null], "errors": [error(1)]})));
    assert_eq!(run(None, true, &items(&[], 1)), Ok(json!({"results": [0], "errors": null})));
    assert!(run(None, false, &items(&[1], 2)).is_err());
}

#[test]
fn sleeps_last_for_a_time_or_until_one() {
    for (settings, input, expected) in [
        (json!({"duration": "5m"}), json!({"v": 1}), Some(300_000)),
        (json!({"duration": "{{workflow.input.wait}}"}), json!({"v": 1, "wait": "1m"}), Some(60_000)),
        (json!({"until": "1970-01-01T00:02:00Z"}), json!({"v": 1}), Some(120_000)),
        (json!({"duration": 0}), json!({"v": 1}), None),
    ] {
        let mut node = json!({"id": "nap", "type": "sleep"});
        node.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let after = json!({"id": "b", "type": "agent", "agent_name": "B", "depends_on": ["nap"]});
        let mut bench = bench(&json!([node, after]), &json!({"got": "{{b.output.input.v}}"}));
        bench.start(input, &mut stub);
        if let Some(ms) = expected {
            assert_eq!(asked(&bench), [] as [&str; 0], "{settings}");
            bench.next_timer(&mut stub);
            assert_eq!(bench.state().act(0).ended_at, Some(ms), "{settings}");
        }
        assert_eq!(outcome(&bench), Some(Ok(json!({"got": 1}))), "{settings}: the input is passed on");
    }
    for (settings, wrong) in [
        (json!({"duration": "{{workflow.input.wait}}"}), "Invalid duration format"),
        (json!({"until": "{{workflow.input.wait}}"}), "not a time in RFC 3339"),
    ] {
        let mut node = json!({"id": "nap", "type": "sleep"});
        node.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let mut bench = bench(&json!([node]), &json!({"nap": "{{nap.output}}"}));
        bench.start(json!({"wait": "soon"}), &mut stub);
        let failed = outcome(&bench).unwrap().unwrap_err();
        assert!(failed.contains(wrong), "{failed}");
    }
}

#[test]
fn mistakes_are_found() {
    let agent = |id: &str, depends: &str| json!({"id": id, "type": "agent", "agent_name": "A", "depends_on": [depends]});
    let check = |nodes: Value, code: &str, part: &str| {
        let used: Value = nodes
            .as_array()
            .unwrap()
            .iter()
            .map(|node| {
                (
                    node["id"].as_str().unwrap().to_owned(),
                    json!(format!("{{{{{}.output}}}}", node["id"].as_str().unwrap())),
                )
            })
            .collect();
        let definition =
            json!({"name": "WF", "workflow": {"description": "A", "nodes": nodes, "output_mapping": used}});
        let items = match lower(&definition) {
            Ok(lowered) => lowered.into_iter().flat_map(|one| one.warnings.items).collect(),
            Err(found) => found.items,
        };
        let hit = items.iter().find(|item| item.code == code && item.message.contains(part));
        assert!(hit.is_some(), "{nodes} has no {code} with '{part}': {items:?}");
        hit.map_or(Severity::Warning, |item| item.severity)
    };
    let approval = |more: Value| {
        let mut node = json!({"id": "ok", "type": "approval", "prompt": "Pay?"});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let wrong = "SINEW-2103";
    for (nodes, part) in [
        (json!([approval(json!({"approvals": 0}))]), "greater than or equal to 1"),
        (json!([approval(json!({"allowed": []}))]), "names nobody"),
        (json!([approval(json!({"allowed": ["group:"]}))]), "names no group"),
        (json!([approval(json!({"allowed": [5]}))]), "the name of a person"),
        (json!([approval(json!({"allowed": ["ada", "ada"], "approvals": 2}))]), "'allowed' names 1"),
        (json!([approval(json!({"on_due": "reject"}))]), "needs 'due'"),
        (json!([approval(json!({"reminder": "1h"}))]), "shorter than 'due'"),
        (json!([approval(json!({"reminder": "1h", "due": "1h"}))]), "shorter than 'due'"),
        (json!([approval(json!({"reminder": 0, "due": "1h"}))]), "shorter than 'due'"),
        (json!([approval(json!({"on_reject": "contine"}))]), "neither a node nor a known word"),
        (json!([{"id": "nap", "type": "sleep", "duration": "1m", "until": "2026-12-01T09:00:00Z"}]), "both"),
        (
            json!([{"id": "m", "type": "map", "items": "{{workflow.input.l}}", "node": "b", "tolerate": "some"}, {"id": "b", "type": "agent", "agent_name": "B"}]),
            "a count or a percentage",
        ),
        (
            json!([{"id": "a", "type": "agent", "agent_name": "A", "continue_on_error": true, "on_error": "b"}, agent("b", "a")]),
            "both",
        ),
    ] {
        assert_eq!(check(nodes, wrong, part), Severity::Error);
    }
    let stands = json!([
        {"id": "m", "type": "map", "items": "{{workflow.input.l}}", "node": "ok"},
        approval(json!({"on_reject": "no"})), agent("no", "ok"),
    ]);
    for (nodes, code, part) in [
        (json!([approval(json!({"on_reject": "refuse"}))]), "SINEW-2105", "on_reject 'refuse'"),
        (
            json!([{"id": "a", "type": "agent", "agent_name": "A", "on_error": "b"}, agent("b", "c"), agent("c", "a")]),
            "SINEW-2106",
            "on_error",
        ),
        (json!([{"id": "nap", "type": "sleep"}]), "SINEW-2102", "'duration' or 'until'"),
        (json!([{"id": "nap", "type": "sleep", "until": "noon"}]), "SINEW-2110", "RFC 3339"),
        (json!([{"id": "nap", "type": "sleep", "duration": "soon"}]), "SINEW-2110", "Invalid duration"),
        (stands, "SINEW-2113", "cannot lead to 'no'"),
    ] {
        assert_eq!(check(nodes, code, part), Severity::Error);
    }
    let long = check(
        json!([{"id": "nap", "type": "sleep", "duration": "1d"}]),
        "SINEW-2127",
        "longer than the 1800 s",
    );
    assert_eq!(long, Severity::Warning);
}
