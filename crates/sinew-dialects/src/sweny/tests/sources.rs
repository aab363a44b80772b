//! Sources referenced by a workflow or an input.

use super::*;

#[test]
fn sources_are_read_once_and_recorded() {
    let mut file = workflow(
        &json!({
            "a": { "instruction": "./a.md", "rules": ["node rule"] },
            "b": { "instruction": { "inline": "./not-a-file" }, "rules": { "only": true, "sources": ["https://x.test/r"] } }
        }),
        "a>b",
    );
    file["rules"] = json!(["./a.md"]);
    file["context"] = json!(["background"]);
    let reads = RefCell::new(Vec::new());
    let read = |path: &str| {
        reads.borrow_mut().push(path.to_owned());
        Ok(format!("\u{feff}text of {path}").into_bytes())
    };
    let lowered = lower_with(&Sweny, &file, &read).expect("everything can be read");
    assert_eq!(*reads.borrow(), ["./a.md", "https://x.test/r"]);
    let sources = lowered.plan.extra["sources"].as_object().unwrap();
    let places: Vec<&str> = sources.keys().map(String::as_str).collect();
    assert_eq!(
        places,
        [
            "workflow.rules.0",
            "workflow.context.0",
            "nodes.a.rules.0",
            "nodes.a.instruction",
            "nodes.b.rules.0",
            "nodes.b.instruction",
        ]
    );
    let record = &sources["nodes.a.instruction"];
    assert_eq!(record["content"], "text of ./a.md");
    assert_eq!(record["hash"].as_str().unwrap().len(), 16);

    let mut bench = Bench::new(lowered.plan, Sweny.adapter());
    let input = json!({ "rules": "input rule", "context": [{ "inline": "/input" }] });
    bench.start(input, &mut |_, _| Stubbed {
        after: 0,
        progress: vec![],
        result: Ok(TaskReply::new(json!({}))),
    });
    let told: Vec<&str> = bench.asked.iter().filter_map(|(_, ask)| ask.instruction.as_deref()).collect();
    assert_eq!(
        told,
        [
            "## Rules — You MUST Follow These\n\ninput rule\n\ntext of ./a.md\n\nnode rule\n\n---\n\n\
         ## Background Context\n\n/input\n\nbackground\n\n---\n\ntext of ./a.md",
            "## Rules — You MUST Follow These\n\ntext of https://x.test/r\n\n---\n\n\
         ## Background Context\n\n/input\n\nbackground\n\n---\n\n./not-a-file",
        ]
    );
    assert_eq!(bench.native()["trace"]["sources"]["input.rules.0"]["content"], "input rule");
}

#[test]
fn an_input_brings_files_that_whoever_starts_it_reads() {
    let workflow = json!({
        "id": "w", "name": "W", "entry": "a", "rules": ["own"], "edges": [],
        "nodes": { "a": { "name": "A", "instruction": "Do it" } },
    });
    let read = |path: &str| match path {
        "./rule.md" => Ok("\u{feff}from a file".into()),
        "https://x.test/c" => Ok(b"from a URL".to_vec()),
        other => Err(format!("{other}: no such file")),
    };
    let given = json!({ "rules": ["./rule.md", "text"], "context": { "url": "https://x.test/c" }, "other": "./rule.md" });
    let input = Sweny.read_input(given.clone(), &read).unwrap();
    assert_eq!(input["other"], "./rule.md", "only sources are read");
    let mut bench = Bench::new(lower(&Sweny, &workflow).unwrap().plan, Sweny.adapter());
    let mut stub =
        |_: &str, _: &_| Stubbed { after: 0, progress: vec![], result: Ok(TaskReply::new(json!({}))) };
    bench.start(input, &mut stub);
    assert_eq!(
        bench.asked[0].1.instruction.as_deref(),
        Some(
            "## Rules — You MUST Follow These\n\nfrom a file\n\ntext\n\nown\n\n---\n\n\
             ## Background Context\n\nfrom a URL\n\n---\n\nDo it"
        )
    );
    let sources = &bench.native()["trace"]["sources"];
    for (place, key, want) in [
        ("input.rules.0", "kind", "file"),
        ("input.rules.0", "origin", "./rule.md"),
        ("input.rules.0", "sourcePath", "./rule.md"),
        ("input.rules.0", "content", "from a file"),
        ("input.rules.1", "kind", "inline"),
        ("input.context.0", "resolver", "fetch"),
    ] {
        assert_eq!(sources[place][key], want, "{place} {key}");
    }

    // A source that was not read is rejected, and no node runs.
    let mut bench = Bench::new(lower(&Sweny, &workflow).unwrap().plan, Sweny.adapter());
    bench.start(given, &mut stub);
    assert!(bench.asked.is_empty());
    let fault = bench.state().outcome.as_ref().unwrap().fault.as_ref().unwrap();
    assert!(fault.details.iter().any(|line| line.starts_with("rules.0: must be text")), "{fault:?}");

    let refused = Sweny.read_input(json!({ "context": ["./gone"] }), &read).unwrap_err();
    assert_eq!(refused.items[0].sub_code.as_deref(), Some("SOURCE_FILE_NOT_FOUND"));
    assert_eq!(refused.items[0].message, "input.context.0: cannot read ./gone: ./gone: no such file");
}

#[test]
fn unreadable_sources_have_the_formats_codes() {
    for (source, why, want) in [
        (json!("./x"), "no such file", "SOURCE_FILE_NOT_FOUND"),
        (json!({ "file": "x" }), "permission denied", "SOURCE_FILE_READ_FAILED"),
        (json!("https://x"), "URLs are not allowed (offline)", "SOURCE_OFFLINE_REQUIRES_FETCH"),
        (json!("https://x"), "HTTP status 403", "SOURCE_URL_AUTH_REQUIRED"),
        (json!("https://x"), "HTTP status 500", "SOURCE_URL_HTTP_ERROR"),
        (json!("https://x"), "connection refused", "SOURCE_URL_UNREACHABLE"),
        (json!("https://x"), "SOURCE_URL_HTTP_ERROR: teapot", "SOURCE_URL_HTTP_ERROR"),
        (json!({ "url": "https://x", "type": "git" }), "", "SOURCE_INVALID_TYPE"),
        (json!({ "url": "https://x", "file": "y" }), "", "SOURCE_INVALID_SHAPE"),
        (json!({ "text": "x" }), "", "SOURCE_INVALID_SHAPE"),
    ] {
        let file = workflow(&json!({ "a": { "instruction": source } }), "");
        let found = lower_with(&Sweny, &file, &|_| Err(why.to_owned())).expect_err("it cannot be read");
        assert_eq!(codes(&found), [want], "{source}");
    }
}
