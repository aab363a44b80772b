use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use serde_json::{Value, json};
use sinew_agents::Artifacts;

use crate::fixture::{Fixture, heard, told};

fn sh(script: &str) -> Value {
    json!({ "command": { "argv": ["/bin/sh", "-c", script] } })
}

fn with(mut run: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    run["command"].as_object_mut().unwrap().extend(fields);
    run
}

#[tokio::test]
async fn answers() {
    for (run, input, expected) in [
        (sh("cat"), json!({"a": [1, 2.5, null, "ü"]}), json!({"a": [1, 2.5, null, "ü"]})),
        (sh("echo 42"), json!({}), json!(42)), // input left unread
        (sh("exec 0<&-; echo null"), json!("x".repeat(300_000)), json!(null)), // and refused, larger than any pipe
        (
            with(sh("cat"), json!({"stdin": "request"})),
            json!(1),
            json!({"input": 1, "instruction": null, "context": null}),
        ),
        (
            with(sh("printf '\"%s\"' \"$GREETING\""), json!({"env": {"GREETING": "hi {{input.n}}"}})),
            json!({"n": "$(id)"}),
            json!("hi $(id)"),
        ),
        (sh("printf '\"%s\"' \"$HOME$TOKEN$USER\""), json!({}), json!("")),
        (json!({"command": {"argv": ["printf", "\"%s\"", "$HOME;{{x}}"]}}), json!({}), json!("$HOME;{{x}}")),
        (sh("head -c 100000 /dev/zero | tr '\\0' ' '; echo true"), json!({}), json!(true)),
    ] {
        let shown = run.to_string();
        assert_eq!(Fixture::new(&run).output(input).await, Ok(expected), "{shown}");
    }
}

#[tokio::test]
async fn values_of_the_environment_are_hidden_in_answers() {
    let script = r#"printf '{"%s": ["n=%s", 12345], "given": "%s", "path": "%s", "n": "%s"}' "$KEY" "$KEY" "$GIVEN" "$PATH" "$SHORT"; \
        printf %s "$KEY" >"$SINEW_ARTIFACTS/key.txt""#;
    let env = json!({"KEY": "Bearer ${env:TOKEN}", "GIVEN": "{{input.word}}", "SHORT": "${NONE, s3cret}"});
    let fixture = Fixture::new(&with(sh(script), json!({ "env": env })));
    let reply = fixture.call(json!({"word": "my s3cret"})).await.unwrap();
    let path = std::env::var("PATH").unwrap();
    let expected =
        json!({"Bearer ***": ["n=Bearer ***", 12345], "given": "my s3cret", "path": path, "n": "s3cret"});
    assert_eq!(reply.output, expected);
    assert_eq!(fixture.stored("key.txt"), b"Bearer s3cret-canary", "bytes of artifacts stay");
}

#[tokio::test]
async fn references_of_a_request_are_resolved_for_the_program() {
    let servers = |header: &str| {
        json!({"request": {"mcp": {
            "a": {"url": "https://tickets.example/${TOKEN}", "headers": {"H": header}},
            "b": {"command": "${TOKEN}", "env": {"E": "x${TOKEN}"}},
        }}})
    };
    let text = "Bearer ${TOKEN}, ${OTHER, none}";
    let resolved = json!({"request": {"mcp": {
        "a": {"url": "https://tickets.example/$%7BTOKEN%7D", "headers": {"H": "Bearer s3cret-value, none"}},
        "b": {"command": "${TOKEN}", "env": {"E": "xs3cret-value"}},
    }}});
    let request = json!({"stdin": "request"});
    let listed = json!({"stdin": "request", "references": {"TOKEN": ["tickets.example", "local"], "UNSET": ["tickets.example"]}});
    let local = json!({"stdin": "request", "references": ["TOKEN"]});
    for (script, fields, header, expected) in [
        // Without a list of its own, an agent reads the request as it was written.
        ("cat", &request, text, Ok(servers(text))),
        // Secrets do not come back: the program shows another word.
        ("sed s/canary/value/g", &listed, text, Ok(resolved)),
        ("cat", &listed, "${PATH}", Err("SINEW-1017 error: environment variable PATH is not allowed here")),
        // A list binds names to no host: a request could name any.
        ("cat", &local, text, Err("SINEW-1017 error: environment variable TOKEN is not allowed here")),
        ("cat", &listed, "${UNSET}", Err("SINEW-1016 error: environment variable UNSET is not set")),
        (
            "cat",
            &listed,
            "${NATS_CREDS}",
            Err(
                "SINEW-1018 error: environment variable NATS_CREDS is reserved: files never read NATS_* and SINEW_*",
            ),
        ),
        // Values that were put in are secrets of the call.
        (
            "tr -d '\\n' >&2; exit 2",
            &listed,
            "x",
            Err(
                "SINEW-5021 failure: the command ended with exit code 2: {\"input\":{\"t\":\"${TOKEN}\"},\"instruction\":\"say ${TOKEN}\",\"context\":{\"request\":{\"mcp\":{\"a\":{\"url\":\"https://tickets.example/$%7BTOKEN%7D\",\"headers\":{\"H\":\"x\"}},\"b\":{\"command\":\"${TOKEN}\",\"env\":{\"E\":\"x***\"}}}}}} (again)",
            ),
        ),
    ] {
        let fixture = Fixture::new(&with(sh(script), fields.clone()));
        let mut call = fixture.input(json!({"t": "${TOKEN}"}));
        call.context = servers(header);
        call.instruction = Some("say ${TOKEN}".to_owned());
        let expected = expected.map_err(str::to_owned).map(
            |context| json!({"input": {"t": "${TOKEN}"}, "instruction": "say ${TOKEN}", "context": context}),
        );
        let got = fixture.agent.call(call).await.map(|reply| reply.output).map_err(|fault| told(&fault));
        assert_eq!(got, expected, "{fields} {header}");
    }
}

#[tokio::test]
async fn runs_in_the_folder_of_its_file() {
    for (fields, expected) in [(json!({}), ""), (json!({"cwd": "sub"}), "sub")] {
        let fixture = Fixture::new(&with(sh("printf '\"%s\"' \"$(pwd -P)\""), fields));
        std::fs::create_dir(fixture.path().join("sub")).unwrap();
        let folder = fixture.path().canonicalize().unwrap().join(expected);
        let seen = PathBuf::from(fixture.output(json!({})).await.unwrap().as_str().unwrap());
        assert_eq!(seen, folder.components().collect::<PathBuf>());
    }
}

#[tokio::test]
async fn fails() {
    for (run, expected) in [
        (sh("echo oops >&2; exit 3"), "SINEW-5021 failure: the command ended with exit code 3: oops (again)"),
        (sh("exit 1"), "SINEW-5021 failure: the command ended with exit code 1 (again)"),
        (sh("kill -9 $$"), "SINEW-5021 failure: the command was killed by signal 9 (again)"),
        (sh("true"), "SINEW-5022 failure: the command's output is not JSON: it is empty (again)"),
        (
            sh("echo garbage; echo why >&2"),
            "SINEW-5022 failure: the command's output is not JSON: expected value at line 1 column 1: why (again)",
        ),
        (
            sh("echo '1 2'"),
            "SINEW-5022 failure: the command's output is not JSON: trailing characters at line 1 column 3 (again)",
        ),
        (
            sh("printf '\\033[31mred\\033[0m\\a\\r\\n' >&2; exit 2"),
            "SINEW-5021 failure: the command ended with exit code 2: red (again)",
        ),
        (
            with(sh("echo token is $T >&2; exit 2"), json!({"env": {"T": "${env:TOKEN}"}})),
            "SINEW-5021 failure: the command ended with exit code 2: token is *** (again)",
        ),
        (
            with(sh("true"), json!({"env": {"T": "${env:UNSET}"}})),
            "SINEW-5036 error: environment variable 'UNSET' is not set",
        ),
        (
            with(sh("true"), json!({"env": {"T": "{{input.nothing}}"}})),
            "SINEW-5035 invalid: env 'T' cannot be filled: there is no 'input.nothing'",
        ),
        (
            json!({"command": {"argv": ["no-such-program-here"]}}),
            "SINEW-5020 error: cannot start 'no-such-program-here': No such file or directory (os error 2)",
        ),
        (
            json!({"command": {"argv": ["python3", "-c", "def f():\n    raise ValueError('no')\nf()"]}}),
            "SINEW-5021 failure: the command ended with exit code 1: ValueError: no (again)",
        ),
        // Neither a flood nor one that is followed by a hang lasts longer than it takes to notice.
        (
            with(sh("yes"), json!({"max_output": 1000})),
            "SINEW-5023 failure: the answer is longer than the limit of 1000 bytes",
        ),
        (
            with(sh("head -c 1001 /dev/zero; sleep 1000"), json!({"max_output": 1000})),
            "SINEW-5023 failure: the answer is longer than the limit of 1000 bytes",
        ),
        (
            with(sh("sleep 1000"), json!({"timeout": "50ms"})),
            "SINEW-5016 timeout: no answer within 0.05 s (again)",
        ),
    ] {
        let shown = run.to_string();
        let fault = Fixture::new(&run).call(json!({})).await.unwrap_err();
        assert_eq!(told(&fault), expected, "{shown}");
    }
}

#[tokio::test]
async fn keeps_the_end_of_a_long_standard_error() {
    let fixture =
        Fixture::new(&sh("i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1"));
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let mut call = fixture.input(json!({}));
    call.progress = sender;
    let fault = fixture.agent.call(call).await.unwrap_err();
    assert!(fault.message.ends_with("line 2999") && fault.message.len() < 4200, "{}", fault.message.len());
    let heard = heard(&mut progress);
    assert_eq!((heard[0].as_str(), heard[255].as_str()), ("line 0", "line 255"));
    // The last lines say how the program ended; the gap before them is told.
    assert_eq!(heard[256], "(2644 lines of standard error are not stored)");
    assert_eq!((heard.len(), heard[257].as_str(), heard[356].as_str()), (357, "line 2900", "line 2999"));
}

#[tokio::test]
async fn keeps_the_end_of_the_standard_error_of_a_program_that_is_ended() {
    let script =
        "i=0; while [ $i -lt 1000 ]; do echo line $i >&2; i=$((i+1)); done; echo ready > pipe; sleep 1000";
    let fixture = Fixture::new(&sh(script));
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path().join("pipe"), 0o600.into()).unwrap();
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let mut call = fixture.input(json!({}));
    call.progress = sender;
    let cancel = call.cancel.clone();
    let pipe = fixture.path().join("pipe");
    let calling = fixture.agent.call(call);
    let stopping = async {
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe)).await;
        assert_eq!(read.unwrap().unwrap(), "ready\n");
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(calling, stopping);
    assert!(ended.is_err());
    let heard = heard(&mut progress);
    assert_eq!((heard.len(), heard[356].as_str()), (357, "line 999"));
}

#[tokio::test]
async fn a_process_left_behind_does_not_hold_up_the_answer() {
    // It keeps stdout open; the group is ended with its leader.
    assert_eq!(Fixture::new(&sh("sleep 1000 & echo 1")).output(json!({})).await, Ok(json!(1)));
}

/// How a call is ended while a grandchild hangs.
#[derive(Debug, Clone, Copy)]
enum End {
    Timeout,
    Cancel,
    Drop,
}

#[tokio::test]
async fn ends_grandchildren_too() {
    let (polite, stubborn) = ("", "trap '' TERM;");
    let cases =
        [End::Timeout, End::Cancel, End::Drop].into_iter().flat_map(|end| [(end, polite), (end, stubborn)]);
    futures_util::future::join_all(cases.map(|(end, trap)| async move {
        // The grandchild holds a pipe open; its end of file is the proof that the grandchild is gone.
        let script =
            format!("{trap} sh -c '{trap} echo ready; while :; do sleep 1000; done' > pipe & wait; wait");
        let fixture = Fixture::new(&with(sh(&script), json!({"grace": "50ms"})));
        rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path().join("pipe"), 0o600.into()).unwrap();
        let mut call = fixture.input(json!({}));
        let cancel = call.cancel.clone();
        if matches!(end, End::Timeout) {
            call.timeout = Some(std::time::Duration::from_secs(2));
        }
        let pipe = fixture.path().join("pipe");
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let gone = tokio::task::spawn_blocking(move || {
            let mut reader = BufReader::new(File::open(pipe).unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            ready.send(line).unwrap();
            reader.read_to_end(&mut Vec::new()).unwrap();
        });
        let mut answer = Box::pin(fixture.agent.call(call));
        tokio::select! {
            line = is_ready => assert_eq!(line.unwrap(), "ready\n"),
            _ = &mut answer => panic!("ended before the grandchild began: {end:?}"),
        }
        let code = match end {
            End::Timeout => Some(answer.await.unwrap_err().code),
            End::Cancel => {
                cancel.cancel();
                Some(answer.await.unwrap_err().code)
            }
            End::Drop => {
                drop(answer);
                None
            }
        };
        let expected = match end {
            End::Timeout => Some("SINEW-5016"),
            End::Cancel => Some("SINEW-5017"),
            End::Drop => None,
        };
        assert_eq!(code.as_deref(), expected, "{end:?} {trap}");
        gone.await.unwrap();
    }))
    .await;
}

#[tokio::test]
async fn files_left_behind_become_artifacts() {
    let script = "cd \"$SINEW_ARTIFACTS\"; printf one > a.txt; printf '{}' > \"b ü.json\"; echo 1";
    let fixture = Fixture::new(&sh(script));
    for version in [0, 1] {
        let reply = fixture.call(json!({})).await.unwrap();
        let names: Vec<_> = reply.artifacts.iter().map(ToString::to_string).collect();
        assert_eq!(names, [format!("a.txt:v{version}"), format!("b ü.json:v{version}")]);
    }
    assert_eq!((fixture.stored("a.txt"), fixture.stored("b ü.json")), (b"one".to_vec(), b"{}".to_vec()));
    assert_eq!(fixture.artifacts.meta("b ü.json", None).unwrap().media_type, "application/json");
}

#[tokio::test]
async fn other_things_left_behind_are_refused() {
    for (left, code) in [
        ("ln -s /etc/passwd secrets", "SINEW-5040"),
        ("ln -s . loop", "SINEW-5040"),
        ("mkdir folder", "SINEW-5040"),
        ("mkfifo pipe", "SINEW-5040"),
        ("printf x > \"$(printf 'a\\377')\"", "SINEW-5040"),
        ("printf x > 'a\\b'", "SINEW-5001"),
        ("printf x > con", "SINEW-5001"),
        ("printf x > 'a\nb'", "SINEW-5001"),
    ] {
        let fixture = Fixture::new(&sh(&format!("cd \"$SINEW_ARTIFACTS\" && {left} && echo 1")));
        let fault = fixture.call(json!({})).await.unwrap_err();
        assert_eq!(fault.code, code, "{left}: {fault}");
        assert_eq!(fixture.artifacts.list().unwrap(), [], "{left}");
    }
}

#[tokio::test]
async fn data_is_checked_before_and_after() {
    let number = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let fixture = Fixture::file(&json!({
        "name": "x",
        "input_schema": number,
        "output_schema": number,
        "run": sh("touch ran; sed s/bad/oops/ | sed 's/\"n\":7/\"n\":\"seven\"/'"),
    }));
    let ran = fixture.path().join("ran");
    let fault = fixture.call(json!({"n": "x"})).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.details.len(), ran.exists()), ("SINEW-5013", 1, false), "{fault}");
    assert!(fault.details[0].starts_with("/n: "), "{fault}");
    let fault = fixture.call(json!({"n": 7})).await.unwrap_err();
    assert_eq!(
        (fault.code.as_ref(), fault.details.len(), fault.retryable),
        ("SINEW-5014", 1, false),
        "{fault}"
    );
    assert_eq!(fixture.output(json!({"n": 8})).await, Ok(json!({"n": 8})));

    let mut call = fixture.input(json!({"n": 8}));
    call.input_schema = Some(json!({"required": ["other"]}));
    assert_eq!(fixture.agent.call(call).await.unwrap_err().code, "SINEW-5013");
    let mut call = fixture.input(json!({"n": 8}));
    call.output_schema = Some(json!({"type": 5}));
    assert_eq!(fixture.agent.call(call).await.unwrap_err().code, "SINEW-5015");
}

#[tokio::test]
async fn runs_no_more_than_its_share_at_once() {
    // Each run proves that it is alone: the folder can be made only once.
    let fixture = Fixture::file(
        &json!({"name": "x", "concurrency": 1, "run": sh("mkdir lock && rmdir lock && echo 1")}),
    );
    let calls = [(); 8].map(|()| fixture.output(json!({})));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer, Ok(json!(1)));
    }
    let call = fixture.input(json!({}));
    call.cancel.cancel();
    assert_eq!(fixture.agent.call(call).await.unwrap_err().code, "SINEW-5017");
}

#[cfg(unix)]
#[tokio::test]
async fn the_artifact_folder_is_for_this_user_only_and_goes_with_the_task() {
    let script = "printf '{\"mode\": \"%s\", \"above\": \"%s\", \"path\": \"%s\"}' \
        \"$(stat -c %a \"$SINEW_ARTIFACTS\")\" \"$(stat -c %a \"$(dirname \"$SINEW_ARTIFACTS\")\")\" \"$SINEW_ARTIFACTS\"";
    let said = Fixture::new(&sh(script)).output(json!({})).await.unwrap();
    assert_eq!((said["mode"].as_str(), said["above"].as_str()), (Some("700"), Some("700")), "{said}");
    assert!(!PathBuf::from(said["path"].as_str().unwrap()).exists());
}
