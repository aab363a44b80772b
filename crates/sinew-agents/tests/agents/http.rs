use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fixture::{Fixture, heard, told};
use crate::server::{Say, Server, json};

/// An agent that asks this server, with further fields.
fn agent(url: &str, fields: Value) -> Fixture {
    let mut http = json!({ "url": url, "allow_private": true });
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    http.as_object_mut().unwrap().extend(fields);
    Fixture::new(&json!({ "http": http }))
}

#[tokio::test]
async fn requests_that_may_act_carry_the_activation() {
    let own = json!({"headers": {"Idempotency-Key": "own"}});
    for (fields, activation, key) in [
        (json!({}), json!("act-1"), Some("act-1")),
        (json!({"method": "DELETE"}), json!("act-1"), Some("act-1")),
        (json!({"method": "GET"}), json!("act-1"), None),
        (own, json!("act-1"), Some("own")),
        (json!({}), json!("two\nlines"), None),
        (json!({}), Value::Null, None),
    ] {
        let server = Server::start(vec![json("1")]).await;
        let shown = format!("{fields} {activation}");
        let fixture = agent(&server.url("/"), fields);
        let mut call = fixture.input(json!({}));
        call.context = json!({"activation": activation});
        fixture.agent.call(call).await.unwrap();
        let seen = server.seen().remove(0);
        let sent = seen.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
        assert_eq!(sent, key, "{shown}");
    }
}

#[tokio::test]
async fn values_of_the_environment_are_hidden_in_answers() {
    let headers = json!({"Authorization": "Bearer ${env:TOKEN}", "X-Key": "${TOKEN}"});
    for (say, expected) in [
        (json(r#"{"auth": "Bearer s3cret-canary", "n": 7}"#), json!({"auth": "Bearer ***", "n": 7})),
        (json(r#"[{"s3cret-canary": "s3cret\u002dcanary"}]"#), json!([{"***": "***"}])),
        (Say::Reply("200 OK", "Content-Type: text/plain", b"got s3cret-canary".to_vec()), json!("got ***")),
    ] {
        let server = Server::start(vec![say]).await;
        let fixture = agent(&server.url("/"), json!({ "headers": headers }));
        assert_eq!(fixture.output(json!({})).await, Ok(expected));
    }
}

#[tokio::test]
async fn sends_data_as_data() {
    let input = json!({
        "id": "a/b?c#d e%2f..", "q": "x&y=z+ü", "n": 7, "deep": {"list": ["first"]},
        "text": "say \"hi\"\n{{input.n}} ${env:TOKEN}", "header": "plain",
    });
    for (rest, fields, line, body) in [
        ("/v1/{{input.id}}/x", json!({"method": "GET"}), "GET /v1/a%2Fb%3Fc%23d%20e%252f../x HTTP/1.1", ""),
        (
            "/s?q={{input.q}}&n={{input.n}}",
            json!({"method": "GET"}),
            "GET /s?q=x%26y%3Dz%2B%C3%BC&n=7 HTTP/1.1",
            "",
        ),
        (
            "/{{input.deep.list.0}}",
            json!({"body": "{\"t\": {{input.text}}, \"l\": {{input.deep}}}"}),
            "POST /first HTTP/1.1",
            r#"{"t": "say \"hi\"\n{{input.n}} ${env:TOKEN}", "l": {"list":["first"]}}"#,
        ),
        (
            "/",
            json!({"method": "PUT", "body": {"whole": "{{input.deep}}", "mixed": ["n={{input.n}}", 1, null]}}),
            "PUT / HTTP/1.1",
            r#"{"whole":{"list":["first"]},"mixed":["n=7",1,null]}"#,
        ),
        (
            "/",
            json!({"headers": {"X-A": "{{input.header}}", "Authorization": "Bearer ${env:TOKEN}"}}),
            "POST / HTTP/1.1",
            "*",
        ),
    ] {
        let server = Server::start(vec![json("{\"ok\":true}")]).await;
        let fixture = agent(&server.url(rest), fields);
        assert_eq!(fixture.output(input.clone()).await, Ok(json!({"ok": true})), "{rest}");
        let seen = server.seen().remove(0);
        let (head, sent) = seen.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.lines().next(), Some(line));
        if body == "*" {
            assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), input);
            assert!(
                head.contains("x-a: plain\r\n") && head.contains("authorization: Bearer s3cret-canary\r\n"),
                "{head}"
            );
        } else {
            assert_eq!(sent, body);
        }
    }
}

#[tokio::test]
async fn refuses_data_that_would_change_the_request() {
    for (rest, fields, input, expected) in [
        (
            "/a/{{input.x}}/b",
            json!({}),
            json!({"x": ".."}),
            "url cannot be filled: '.' and '..' cannot be a part of a path",
        ),
        (
            "/a/{{input.x}}{{input.x}}",
            json!({}),
            json!({"x": "."}),
            "url cannot be filled: '.' and '..' cannot be a part of a path",
        ),
        (
            "/a/%2e{{input.x}}/b",
            json!({}),
            json!({"x": "."}),
            "url cannot be filled: '.' and '..' cannot be a part of a path",
        ),
        (
            "/a/{{input.x}}/b",
            json!({}),
            json!({"x": ""}),
            "url cannot be filled: an empty value cannot be part of a path",
        ),
        (
            "/a/{{input.x}}",
            json!({}),
            json!({"x": {}}),
            "url cannot be filled: an object cannot be inserted into text",
        ),
        ("/a/{{input.x}}", json!({}), json!({}), "url cannot be filled: there is no 'input.x'"),
        ("/", json!({"body": "{{input.x}}"}), json!({}), "body cannot be filled: there is no 'input.x'"),
        (
            "/",
            json!({"headers": {"X": "{{input.x}}"}}),
            json!({"x": "a\r\nEvil: 1"}),
            "header 'x' cannot be filled: a value contains a control character",
        ),
        (
            "/",
            json!({"headers": {"X": "{{input.x}}"}}),
            json!({"x": "a\u{0}"}),
            "header 'x' cannot be filled: a value contains a control character",
        ),
    ] {
        let server = Server::start(vec![json("1")]).await;
        let fault = agent(&server.url(rest), fields).call(input).await.unwrap_err();
        assert_eq!(told(&fault), format!("SINEW-5035 invalid: {expected}"));
        assert_eq!(server.seen(), [""; 0]);
    }
    let server = Server::start(vec![json("1")]).await;
    let fault =
        agent(&server.url("/"), json!({"headers": {"X": "${env:UNSET}"}})).call(json!({})).await.unwrap_err();
    assert_eq!(told(&fault), "SINEW-5036 error: environment variable 'UNSET' is not set");
}

#[tokio::test]
async fn reads_answers() {
    let reply = |kind, body: &[u8]| Say::Reply("200 OK", kind, body.to_vec());
    for (say, expected) in [
        (json("{\"b\":1,\"a\":[]}"), Ok(json!({"b": 1, "a": []}))),
        (reply("Content-Type: application/problem+json", b"[1]"), Ok(json!([1]))),
        (reply("Content-Type: text/plain", "ü {}".as_bytes()), Ok(json!("ü {}"))),
        (reply("", b""), Ok(json!(""))),
        (Say::Reply("204 No Content", "", Vec::new()), Ok(json!(""))),
        (
            json("nonsense"),
            Err(
                "SINEW-5034 failure: the response of '127.0.0.1' cannot be read: it is not JSON: expected ident at line 1 column 2 (again)",
            ),
        ),
        (
            reply("Content-Type: text/plain", b"\xff\xfe"),
            Err(
                "SINEW-5034 failure: the response of '127.0.0.1' cannot be read: it is not UTF-8 text (again)",
            ),
        ),
        (
            reply("", &[b'x'; 1001]),
            Err("SINEW-5023 failure: the answer is longer than the limit of 1000 bytes"),
        ),
        (Say::Endless, Err("SINEW-5023 failure: the answer is longer than the limit of 1000 bytes")),
        (
            Say::Reply("404 Not Found", "", b"no \x1b[1msuch\x1b[0m thing for s3cret-canary".to_vec()),
            Err("SINEW-5032 failure: '127.0.0.1' returned HTTP status 404: no such thing for ***"),
        ),
        (
            Say::Reply("302 Found", "Location: http://169.254.169.254/latest/", Vec::new()),
            Err("SINEW-5032 failure: '127.0.0.1' returned HTTP status 302: redirects are not followed"),
        ),
        (
            Say::Reply("500 Oops", "", b"boom".to_vec()),
            Err(
                "SINEW-5033 error: '127.0.0.1' is unavailable, last answer 500 after 1 attempts: boom (again)",
            ),
        ),
    ] {
        let server = Server::start(vec![say.clone(), json("\"a second request\"")]).await;
        let fields = json!({"max_output": 1000, "headers": {"Authorization": "${env:TOKEN}"}});
        let answer = agent(&server.url("/secret-path"), fields).output(json!({})).await;
        assert_eq!(answer.map_err(|fault| told(&fault)), expected.map_err(str::to_owned), "{say:?}");
        assert_eq!(server.seen().len(), 1, "{say:?}");
    }
}

#[tokio::test]
async fn bodies_that_are_not_texts_are_artifacts() {
    let png = b"\x89PNG\r\n\x1a\n\x00";
    for (header, body, expected) in [
        ("Content-Type: image/png", png.as_slice(), Err(("image/png", "response.png"))),
        ("Content-Type: IMAGE/JPEG; q=1", b"text", Err(("image/jpeg", "response.jpeg"))),
        ("Content-Type: application/x-thing", b"\xff", Err(("application/x-thing", "response.bin"))),
        ("Content-Type: image/<b>", b"\xff", Err(("application/octet-stream", "response.bin"))),
        ("", b"\xff\xfe", Err(("application/octet-stream", "response.bin"))),
        ("Content-Type: application/octet-stream", b"words", Ok(json!("words"))),
        ("Content-Type: image/svg+xml", b"<svg/>", Ok(json!("<svg/>"))),
        ("Content-Type: text/plain; charset=ISO-8859-1", b"caf\xe9", Ok(json!("caf\u{e9}"))),
        (
            "Content-Type: application/json; charset=\"latin1\"",
            b"{\"x\": \"\xe9\"}",
            Ok(json!({"x": "\u{e9}"})),
        ),
    ] {
        let server = Server::start(vec![Say::Reply("201 Created", header, body.to_vec())]).await;
        let fixture = agent(&server.url("/"), json!({}));
        let reply = fixture.call(json!({})).await.unwrap();
        match expected {
            Ok(output) => assert_eq!((reply.output, reply.artifacts.len()), (output, 0), "{header}"),
            Err((media_type, name)) => {
                let artifact = format!("{name}:v0");
                let output = json!({"status": 201, "media_type": media_type, "artifact": artifact});
                assert_eq!(reply.output, output, "{header}");
                assert_eq!(reply.artifacts[0].to_string(), artifact);
                assert_eq!(fixture.stored(name), body);
                assert_eq!(fixture.artifacts.meta(name, None).unwrap().media_type, media_type);
            }
        }
    }
}

#[tokio::test]
async fn broken_connections_are_told_without_the_url() {
    for say in [
        Some(Say::Raw(b"HELLO\r\n\r\n")),
        Some(Say::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nxx")),
        None,
    ] {
        let url = if let Some(say) = &say {
            Server::start(vec![say.clone()]).await.url("/path?key=value")
        } else {
            let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            format!("https://{closed}/path?key=value")
        };
        let fault = agent(&url, json!({})).call(json!({})).await.unwrap_err();
        assert!(fault.code == "SINEW-5031" && fault.retryable, "{say:?} {fault}");
        assert!(!fault.message.contains("path") && !fault.message.contains("key"), "{fault}");
    }
}

#[tokio::test]
async fn tries_again_when_the_server_is_busy() {
    let busy = |retry_after| Say::Reply("429 Too Many Requests", retry_after, b"s3cret-canary".to_vec());
    let past = "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT";
    for (script, limit, expected, requests) in [
        (vec![busy("Retry-After: 0"), json("1")], 1, Ok(json!(1)), 2),
        (vec![busy(past), Say::Reply("503 Busy", past, Vec::new()), json("2")], 2, Ok(json!(2)), 3),
        (vec![busy("Retry-After: 0"), busy("Retry-After: 0"), json("1")], 1, Err(Some(0)), 2),
        // A wish longer than our patience, or than the time left, ends the call and is handed on.
        (vec![busy("Retry-After: 3600"), json("1")], 5, Err(Some(3_600_000)), 1),
        (vec![busy("Retry-After: 30"), json("1")], 5, Err(Some(30_000)), 1),
        (vec![Say::Reply("502 Bad", "", Vec::new()), json("1")], 0, Err(None), 1),
    ] {
        let server = Server::start(script).await;
        let fields = json!({"retry": {"limit": limit}, "headers": {"Authorization": "${env:TOKEN}"}});
        let fixture = agent(&server.url("/"), fields);
        let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
        let mut call = fixture.input(json!({}));
        call.progress = sender;
        call.timeout = Some(std::time::Duration::from_secs(20));
        let answer = fixture.agent.call(call).await.map(|reply| reply.output);
        let answer = answer.map_err(|fault| {
            assert!(fault.code == "SINEW-5033" && fault.retryable, "{fault}");
            assert!(!fault.message.contains("canary"), "{fault}");
            fault.retry_after_ms
        });
        assert_eq!((answer, server.seen().len()), (expected, requests));
        let heard = heard(&mut progress);
        assert_eq!(heard.len(), requests - 1);
        assert!(
            heard.iter().all(|line| line.starts_with("attempt ") && !line.contains("canary")),
            "{heard:?}"
        );
    }
}

#[tokio::test]
async fn private_addresses_are_refused_before_any_connection() {
    let server = Server::start(vec![json("1")]).await;
    let port = server.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "LocalHost",
        "127.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "2130706433",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[fd00::1]",
        "[fe80::1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "１２７.０.０.１",
        "①②⑦.0.0.1",
    ] {
        let fixture = Fixture::new(&json!({"http": {"url": format!("http://{host}:{port}/")}}));
        let fault = fixture.call(json!({})).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.retryable), ("SINEW-5030", false), "{host}: {fault}");
    }
    assert_eq!(server.seen(), [""; 0]);
}

#[tokio::test]
async fn a_silent_server_costs_the_time_it_may() {
    let server = Server::start(vec![Say::Hang]).await;
    let fault = agent(&server.url("/"), json!({"timeout": "100ms"})).call(json!({})).await.unwrap_err();
    assert_eq!(told(&fault), "SINEW-5016 timeout: no answer within 0.1 s (again)");
}

#[tokio::test]
async fn can_be_cancelled() {
    let server = Server::start(vec![Say::Hang]).await;
    let fixture = agent(&server.url("/"), json!({}));
    let call = fixture.input(json!({}));
    let cancel = call.cancel.clone();
    let (answer, ()) = tokio::join!(fixture.agent.call(call), async {
        server.asked.notified().await;
        cancel.cancel();
    });
    assert_eq!(answer.unwrap_err().code, "SINEW-5017");
}

#[tokio::test]
async fn the_input_may_describe_the_whole_request() {
    let described = |allow_private: bool| {
        Fixture::new(&json!({ "http": { "from_input": true, "allow_private": allow_private } }))
    };
    let script = vec![
        Say::Reply("404 Not Found", "Content-Type: application/json", b"{\"error\":\"none\"}".to_vec()),
        Say::Reply("302 Found", "Location: http://169.254.169.254/", Vec::new()),
    ];
    let server = Server::start(script).await;
    // A node of a canvas graph sends its parameters.
    let input = json!({ "params": {
        "url": server.url("/orders?x=1"), "method": "put", "query": { "q": "a&b" }, "headers": { "X-Key": "k" },
        "body": { "n": 1 },
    } });
    let output = described(true).output(input.clone()).await.unwrap();
    assert_eq!(
        (&output["response"]["status"], &output["response"]["body"]),
        (&json!(404), &json!({ "error": "none" }))
    );
    assert_eq!(output["response"]["headers"]["content-type"], "application/json");
    let seen = server.seen().remove(0);
    assert!(
        seen.starts_with("PUT /orders?x=1&q=a%26b HTTP/1.1\r\n") && seen.ends_with("{\"n\":1}"),
        "{seen}"
    );
    assert!(seen.contains("x-key: k\r\n"), "{seen}");
    // A redirect is an answer; it is not followed.
    let output = described(true).output(json!({ "url": server.url("/") })).await.unwrap();
    assert_eq!(output["response"]["status"], 302);
    // The address comes from data, so private addresses are refused before any connection.
    for host in ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "0x7f.0.0.1"] {
        let url = format!("http://{host}:{}/", server.address.port());
        let fault = described(false).call(json!({ "url": url })).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.retryable), ("SINEW-5030", false), "{host}: {fault}");
    }
    assert_eq!(server.seen().len(), 2);
    let fault = described(true).call(json!({ "url": "file:///etc/passwd" })).await.unwrap_err();
    assert_eq!(fault.code, "SINEW-5013");
}
