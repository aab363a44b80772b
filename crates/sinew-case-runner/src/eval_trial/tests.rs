use serde_json::json;
use sinew_protocol::Fault;

use super::*;
use crate::eval_file::read_eval;

fn case(text: &str) -> EvalCase {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.eval.yaml");
    std::fs::write(&path, format!("agent: x.agent.yaml\ncases:\n  - {text}\n")).unwrap();
    read_eval(&path).unwrap().cases.remove(0)
}

fn trial(outcome: Result<Value, Fault>) -> EvalTrial {
    EvalTrial {
        outcome,
        calls: vec!["peer_Look".to_owned(), "peer_Act".to_owned()],
        usage: json!({"turns": 3, "cost_usd": 0.002, "input_tokens": 10, "output_tokens": 4}),
        elapsed: Duration::from_millis(1_500),
    }
}

#[test]
fn expectations_that_do_not_hold_are_told() {
    let check = |expect: &str, outcome: Result<Value, Fault>, want: &[&str]| {
        let case = case(&format!("{{name: n, expect: {expect}}}"));
        assert_eq!(grade_trial(&case, &trial(outcome)), want, "{expect}");
    };
    let output = || Ok(json!({"text": "It \"arrives\" on FRIDAY.", "n": 1}));
    let fault = || Err(Fault::error("SINEW-5206", "no answer fits"));
    check("{output_contains: {n: 1}, calls: [peer_Look, peer_Act], max_turns: 3}", output(), &[]);
    check("{text_contains: [friday, '\"arrives\"']}", output(), &[]);
    check(
        "{text_contains: monday}",
        output(),
        &["text_contains: 'monday' is missing in {\"text\":\"It \\\"arrives\\\" on FRIDAY.\",\"n\":1}"],
    );
    check("{output_contains: {n: 2}}", output(), &["output_contains: /n: expected 2, got 1"]);
    check("{called: peer_Act, not_called: [send]}", output(), &[]);
    check("{called: send}", output(), &["called: send was not called; called: [peer_Look, peer_Act]"]);
    check("{not_called: peer_Act}", output(), &["not_called: peer_Act was called"]);
    check("{max_turns: 2}", output(), &["max_turns: 3 turns, at most 2"]);
    check("{max_cost_usd: 0.001}", output(), &["max_cost_usd: $0.002000, at most $0.001"]);
    check("{error: SINEW-5206}", fault(), &[]);
    check("{error: SINEW-5208}", fault(), &["error: error: no answer fits [SINEW-5206]"]);
    check(
        "{error: SINEW-5206}",
        output(),
        &["error: there is an output: {\"text\":\"It \\\"arrives\\\" on FRIDAY.\",\"n\":1}"],
    );
    check("{output: {}, max_turns: 9}", fault(), &["error: no answer fits [SINEW-5206]"]);
}

#[test]
fn enough_trials_must_pass() {
    let graded = |good: bool| GradedTrial {
        trial: trial(Ok(Value::Null)),
        problems: if good { Vec::new() } else { vec!["wrong".to_owned()] },
    };
    let verdict = |pass: f64, good: usize, bad: usize| EvalVerdict {
        file: "x.eval.yaml".to_owned(),
        name: "n".to_owned(),
        pass,
        trials: [vec![graded(true); good], vec![graded(false); bad]].concat(),
    };
    for (pass, good, bad, want) in [
        (1.0, 3, 0, true),
        (1.0, 2, 1, false),
        (0.6, 3, 2, true),
        (0.7, 7, 3, true),
        (0.8, 7, 3, false),
        (0.5, 0, 0, false),
    ] {
        assert_eq!(verdict(pass, good, bad).passed(), want, "{pass} of {good} and {bad}");
    }
    let report = EvalReport { verdicts: vec![verdict(1.0, 1, 0), verdict(1.0, 1, 1)] };
    assert!(!report.is_good() && !EvalReport::default().is_good());
    assert_eq!(
        report.summary(),
        "1 passed, 1 failed  3 trials, 3.0 turns  1.5s  $0.006000, 30 tokens in, 12 out"
    );
    assert_eq!(
        report.verdicts[1].text(true),
        "x failed  x.eval.yaml  n  1 of 2  3.0 turns  1.5s  $0.004000\n    trial 2: wrong\n"
    );
    assert_eq!(report.json()["cases"][1]["trials"][1]["problems"], json!(["wrong"]));
}

#[test]
fn files_that_make_no_sense_are_refused() {
    let check = |text: &str, want: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.eval.yaml");
        std::fs::write(&path, text).unwrap();
        let failure = format!("{:?}", read_eval(&path).unwrap_err());
        assert!(failure.contains(want), "{text}: {failure}");
    };
    check("agent: a\ncases: [{name: n}]", "SINEW-");
    check("agent: a\ncases: [{name: n, rubric: good}]", "there is no judge");
    check("agent: a\ncases: [{name: n, expect: {output: 1}, pass: 2}]", "SINEW-");
    check("agent: a\ncases: [{name: n, expect: {outputs: 1}}]", "SINEW-");
    check("agent: a\ncases: [{name: n, expect: {output: 1}}]\nretry: 2", "SINEW-");
}
