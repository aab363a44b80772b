//! The examples do what they say: they validate, pass their tests, run, and editors get the current schemas.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// A history: its name, commits (none: no repository), lines of a change log, room, where changes are told, how many, and
/// how many lines the notes have (none: there are no notes).
type History<'a> = (&'a str, Option<Vec<String>>, &'a [String], u64, &'a str, u64, Option<usize>);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs `sinew` in the root of the repository.
fn sinew(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(args).current_dir(root());
    if args.first() == Some(&"run") {
        command.arg("--trust").env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    }
    command.output().unwrap()
}

/// Returns the output of `sinew`, which must succeed.
fn printed(args: &[&str]) -> String {
    let output = sinew(args);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "sinew {args:?}: {told}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

fn answer(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

#[test]
fn schemas_for_editors_are_current() {
    let dialects = printed(&["schema", "workflow", "-o", "name"]);
    let workflows = dialects.lines().map(|dialect| {
        (format!("workflow.{dialect}.json"), vec!["schema", "workflow", "--dialect", dialect])
    });
    let others = ["agent", "bridge", "test", "agent-test", "agent-eval"]
        .map(|kind| (format!("{kind}.json"), vec!["schema", kind]));
    for (file, args) in workflows.chain(others) {
        let kept = std::fs::read_to_string(root().join("examples/schemas").join(&file)).unwrap_or_default();
        assert_eq!(kept, printed(&args), "sinew {} > examples/schemas/{file}", args.join(" "));
    }
}

/// Editors explain every property of workflow files.
#[test]
fn schemas_of_workflows_describe_every_property() {
    for dialect in printed(&["schema", "workflow", "-o", "name"]).lines() {
        let missing = undescribed(&answer(&["schema", "workflow", "--dialect", dialect]));
        assert!(missing.is_empty(), "{dialect}: {missing:?}");
    }
}

/// Returns the properties without a description, at any depth of a schema.
fn undescribed(schema: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        if key == "properties" {
            let properties = value.as_object().into_iter().flatten();
            let bare = properties.filter(|(_, property)| property["description"].is_null());
            missing.extend(bare.map(|(name, _)| name.clone()));
        }
        missing.extend(undescribed(value));
    }
    missing.extend(schema.as_array().into_iter().flatten().flat_map(undescribed));
    missing
}

#[test]
fn examples_validate_and_pass_their_tests() {
    printed(&["workflow", "validate", "--strict", "examples"]);
    printed(&["test", "examples"]);
}

/// Files of the guides are fenced with their name: they validate and pass their tests.
#[test]
fn files_of_the_guides_validate_and_pass_their_tests() {
    for dialect in printed(&["schema", "workflow", "-o", "name"]).lines() {
        let guide = std::fs::read_to_string(root().join(format!("docs/guides/{dialect}.md"))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for block in guide.split("\n```").skip(1).step_by(2) {
            let (fence, content) = block.split_once('\n').unwrap();
            if let Some((_, name)) = fence.split_once(' ') {
                std::fs::write(folder.path().join(name), format!("{content}\n")).unwrap();
                names.push(name.to_owned());
            }
        }
        assert!(names.iter().any(|name| name.ends_with(".test.yaml")), "{dialect}: {names:?}");
        for args in [&["workflow", "validate", "--strict", "--dialect", dialect, "."][..], &["test", "."]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
            let output = command.args(args).current_dir(folder.path()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{dialect}: {text}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Commands of a document that stand behind `$ sinew`, each with the lines below it.
fn typed_commands(document: &str) -> Vec<(Vec<String>, String)> {
    let mut found: Vec<(Vec<String>, String)> = Vec::new();
    let mut is_open = false;
    for line in document.lines() {
        if let Some(command) = line.strip_prefix("$ sinew ") {
            found.push((shell_words(command), String::new()));
            is_open = true;
        } else if line.starts_with("```") {
            is_open = false;
        } else if is_open && let Some((_, below)) = found.last_mut() {
            below.push_str(line);
            below.push('\n');
        }
    }
    found
}

/// Words of a shell line without a comment; quotes hold a word together.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            '#' if !quoted && word.is_none() => break,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn ready_made_agents_do_what_their_page_says() {
    let page = std::fs::read_to_string(root().join("agent-cards/README.md")).unwrap();
    let commands = typed_commands(&page);
    assert!(commands.len() >= 8, "{commands:?}");
    for (command, below) in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        assert_eq!(printed(&words).trim(), below.trim(), "{command:?}");
    }
    // A workflow that was just made runs, with nothing else in its folder.
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_sinew")).args(args).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["new", "workflow", "hello"]);
    let answer: Value = serde_json::from_str(&run(&["run", "hello.yaml", "-q", "-p", "name=Ada"])).unwrap();
    assert_eq!(answer, json!({"text": "Hello, Ada!"}));
    // Its record is there for the commands of executions.
    let rows: Value = serde_json::from_str(&run(&["execution", "list", "--local", "-o", "json"])).unwrap();
    assert_eq!((&rows[0]["workflow"], &rows[0]["status"]), (&json!("hello"), &json!("succeeded")), "{rows}");
    let result: Value = serde_json::from_str(&run(&["execution", "result", "@latest"])).unwrap();
    assert_eq!(result, answer);
    let node: Value =
        serde_json::from_str(&run(&["execution", "describe", "@latest", "--node", "greet", "-o", "json"]))
            .unwrap();
    assert_eq!((&node["input"], &node["output"]), (&json!({"name": "Ada"}), &json!({"text": "Hello, Ada!"})));
}

#[test]
fn projects_of_agents_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let sinew = env!("CARGO_BIN_EXE_sinew");
    run(sinew, &["new", "agent", "billing", "--kind", "python", "--dir", "python"]);
    for file in ["agent.py", "sinew_agent.py"] {
        let read = format!("import ast; ast.parse(open('python/billing/{file}').read())");
        run("python3", &["-c", &read]);
    }
    let agent = std::fs::read_to_string(folder.path().join("python/billing/agent.py")).unwrap();
    assert!(agent.contains("sinew_agent.run(\"billing\", answer"), "{agent}");
    let readme = std::fs::read_to_string(folder.path().join("python/billing/README.md")).unwrap();
    assert!(readme.contains("NATS_URL and SINEW_NAMESPACE"), "{readme}");
    run(sinew, &["new", "agent", "billing", "--kind", "rust", "--dir", "rust"]);
    let read = run(
        env!("CARGO"),
        &[
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
            "--manifest-path",
            "rust/billing/Cargo.toml",
        ],
    );
    let package: Value = serde_json::from_str(&read).unwrap();
    let dependencies = package["packages"][0]["dependencies"].as_array().unwrap();
    let sdk = dependencies.iter().find(|one| one["name"] == "sinew-agent").unwrap();
    // The same on every machine: the repository at a commit, and no folder of this one.
    let source = sdk["source"].as_str().unwrap();
    assert!(source.starts_with("git+https://") && source.contains("?rev="), "{source}");
    // A file that is there is never changed.
    let again = Command::new(sinew)
        .args(["new", "agent", "billing", "--kind", "rust", "--dir", "rust"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(6));
}

/// The dependency lines of a new project hold where no workspace is around it.
#[test]
fn a_rust_project_of_an_agent_is_resolved_outside_the_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_sinew"));
    let new = Command::new(program)
        .args(["new", "agent", "billing", "--kind", "rust", "--sdk-path"])
        .arg(root().join("crates/sinew-agent"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(new.status.success(), "{}", String::from_utf8_lossy(&new.stderr));
    let project = folder.path().join("billing");
    let manifest = std::fs::read_to_string(project.join("Cargo.toml")).unwrap();
    // Its code is compiled as an example of sinew-agent; left to check here is that its manifest fits the crates.
    let code = std::fs::read_to_string(project.join("src/main.rs")).unwrap();
    let template = root().join("crates/sinew/src/templates/rust/main.rs");
    assert_eq!(code, std::fs::read_to_string(template).unwrap().replace("AGENT_NAME", "billing"));
    // Versions that this checkout is built with are there without a network.
    std::fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    // Crates of other platforms are not, and `cargo metadata` would ask for them.
    let resolved = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--depth", "1"])
        .current_dir(&project)
        .output()
        .unwrap();
    assert!(resolved.status.success(), "{manifest}\n{}", String::from_utf8_lossy(&resolved.stderr));
    // Each crate of ours that a project depends on says what it is for.
    let manifest: Vec<&str> = manifest
        .lines()
        .filter(|line| line.starts_with("sinew-"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(!manifest.is_empty());
    for name in manifest {
        let readme = std::fs::read_to_string(root().join("crates").join(name).join("README.md")).unwrap();
        assert!(readme.lines().count() > 10, "{name}");
    }
}

#[test]
fn drawings_of_the_examples_are_current() {
    let readme = std::fs::read_to_string(root().join("examples/README.md")).unwrap();
    let files = [
        "orders/orders.yaml#orders",
        "release-notes/notes.yaml",
        "doc-triage/triage.json",
        "lint-report/lint.json",
        "metrics-digest/digest.json",
    ];
    for file in files {
        let (path, workflow) = file.split_once('#').unwrap_or((file, ""));
        let path = format!("examples/{path}");
        let mut args = vec!["workflow", "draw", &path, "--format", "mermaid"];
        if !workflow.is_empty() {
            args.extend(["-w", workflow]);
        }
        let drawing = printed(&args);
        assert!(
            readme.contains(&drawing),
            "examples/README.md shows another drawing than sinew {}",
            args.join(" ")
        );
    }
}

#[test]
fn orders_take_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let run = |input: &str| {
        let artifacts = folder.path().to_str().unwrap();
        answer(&["run", "-q", "examples/orders/orders.yaml", "-i", input, "--artifacts", artifacts])
    };
    assert_eq!(
        run("@examples/orders/order.json"),
        json!({
            "status": "confirmed",
            "message": "Order A-17 is on its way as EXPRESS-A-17. Thank you for staying with us, ada!",
            "paid": 255.0
        })
    );
    let empty = r#"{"order_id": "A-18", "customer": "bob", "lines": []}"#;
    assert_eq!(run(empty)["message"], "Sorry: the order has no lines");
}

/// Fields that only some types of node have in their events.
const FIELDS_OF_NODES: [&str; 18] = [
    "agent_name",
    "input_artifact_ref",
    "iteration_index",
    "sub_task_id",
    "parent_node_id",
    "condition",
    "true_branch",
    "false_branch",
    "cases",
    "default_branch",
    "wait_for",
    "join_strategy",
    "max_iterations",
    "output_artifact_ref",
    "condition_result",
    "selected_branch",
    "workflow_input",
    "workflow_output",
];

#[test]
fn events_of_the_orders_example_have_all_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = folder.path().to_str().unwrap();
    let file = "examples/orders/orders.yaml";
    let input = "@examples/orders/order.json";
    let told = printed(&[
        "run",
        "-q",
        file,
        "-i",
        input,
        "--events",
        "mesh-spec",
        "-o",
        "jsonl",
        "--artifacts",
        artifacts,
    ]);
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |field: &str| lines.iter().any(|event| !event[field].is_null());
    let missing: Vec<&str> = FIELDS_OF_NODES.into_iter().filter(|field| !has(field)).collect();
    assert!(missing.is_empty(), "no event has {missing:?}");
    for kind in ["map", "fork", "join", "loop"] {
        let start = lines.iter().find(|event| event["node_type"] == kind);
        assert!(start.is_some_and(|event| !event["input_artifact_ref"].is_null()), "{kind}: {start:?}");
    }
}

#[test]
fn results_and_trace_of_a_run_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = folder.path().to_str().unwrap();
    let export = folder.path().join("run.json");
    let args = [
        "run",
        "-q",
        "examples/orders/orders.yaml",
        "-i",
        "@examples/orders/order.json",
        "--artifacts",
        artifacts,
        "--export",
        export.to_str().unwrap(),
        "--native",
    ];
    let native = answer(&args);
    assert_eq!(native["status"], "completed");
    assert_eq!(native["completed_nodes"]["reserve_all"]["status"], "success");
    let export = export.to_str().unwrap();
    assert_eq!(answer(&["execution", "result", export, "--native"]), native);
    assert_eq!(answer(&["execution", "describe", export, "-o", "json"])["native"], native);
    let merged = answer(&["artifact", "get", export, "fork_lookup_merged.json"]);
    assert_eq!(merged, native["node_outputs"]["lookup"]);
    let input = answer(&["artifact", "get", export, "wi_orders.json:0"]);
    assert_eq!(input, native["workflow_input"]);
    let items = answer(&["artifact", "get", export, "map_reserve_all_items.json"]);
    assert_eq!(items, native["node_outputs"]["lookup"]["prices"]["lines"]);
}

#[test]
fn this_repository_is_reviewed() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = folder.path().to_str().unwrap();
    let file = "examples/dependency-review/review.yaml";
    let output = answer(&["run", "-q", file, "-p", "budget=4", "--artifacts", artifacts]);
    let packages = output["packages"].as_u64().unwrap();
    let levels: u64 = output["levels"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert!(packages > 100 && levels == packages, "{output}");
    assert!(output["shortlist"].as_array().unwrap().len() <= 4, "{output}");
    let report = std::fs::read_to_string(folder.path().join("files/report.md")).unwrap();
    assert!(report.contains(&format!("{packages} packages were assessed")), "{report}");
    let chart = std::fs::read_to_string(folder.path().join("files/chart.svg")).unwrap();
    assert!(chart.starts_with("<svg ") && chart.trim_end().ends_with("</svg>"), "{chart}");
}

/// Runs git in a folder, with nobody's settings.
fn git(folder: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A copy of an example in a folder of its own.
fn copied(example: &str, to: &Path) -> PathBuf {
    let from = root().join("examples").join(example);
    let to = to.join("examples").join(example);
    std::fs::create_dir_all(to.join("agent-cards")).unwrap();
    for folder in [Path::new(""), Path::new("agent-cards")] {
        for entry in std::fs::read_dir(from.join(folder)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), to.join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
    to
}

#[test]
fn release_notes_are_shortened_until_they_fit() {
    let long = "Add a feature whose description has no end ".repeat(4);
    let many: Vec<String> = (0..4)
        .flat_map(|n| {
            [format!("Add part {n}"), format!("Fix part {n}"), format!("Tests of part {n}"), long.clone()]
        })
        .collect();
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    // Each history: its commits (none: no repository), lines of a change log, room, where changes are told, how many,
    // and how many lines the notes have (none: there are no notes).
    let log = texts(&["Adds a", "Fixes b"]);
    let histories: [History<'_>; 8] = [
        ("all kinds, shortened", Some(many.clone()), &[], 16, "git", 12, Some(16)),
        ("all kinds, in numbers", Some(many.clone()), &log, 15, "git", 12, Some(4)),
        ("all kinds, hardly any room", Some(many), &[], 1, "git", 12, Some(1)),
        ("a few commits", Some(texts(&["Add a", "Fix a"])), &[], 14, "git", 2, Some(9)),
        ("one commit with a long name", Some(vec![long]), &[], 14, "git", 1, Some(5)),
        ("a repository without a commit", Some(vec![]), &log, 14, "CHANGELOG.md", 2, Some(9)),
        ("no repository", None, &log, 14, "CHANGELOG.md", 2, Some(9)),
        ("nothing at all", None, &[], 14, "CHANGELOG.md", 0, None),
    ];
    for (name, subjects, log, room, source, count, lines) in histories {
        let folder = tempfile::tempdir().unwrap();
        let example = copied("release-notes", folder.path());
        if let Some(subjects) = subjects {
            git(folder.path(), &["init", "-q"]);
            for subject in &subjects {
                git(folder.path(), &["commit", "-q", "--allow-empty", "-m", subject]);
            }
        }
        if !log.is_empty() {
            std::fs::write(folder.path().join("CHANGELOG.md"), format!("- {}\n", log.join("\n- "))).unwrap();
        }
        let file = example.join("notes.yaml");
        let (artifacts, room_given) = (folder.path().join("artifacts"), format!("max_lines={room}"));
        let mut args = vec!["run", "-q", file.to_str().unwrap(), "-p", "commits=12", "-p", &room_given];
        args.extend(["--artifacts", artifacts.to_str().unwrap()]);
        for agent in ["work=NotesWriter", "route=EdgeChooser", "judge=RubricJudge"] {
            args.extend(["--default-agent", agent]);
        }
        let results = &answer(&args)["results"];
        assert_eq!(results["collect"]["data"]["source"], source, "{name}: {results}");
        assert_eq!(results["collect"]["data"]["count"], count, "{name}: {results}");
        let Some(lines) = lines else {
            assert_eq!(results["nothing"]["status"], "success", "{name}: {results}");
            continue;
        };
        assert_eq!(results["review"]["data"]["verdict"], "fits", "{name}: {results}");
        let notes = std::fs::read_to_string(artifacts.join("files/notes.md")).unwrap();
        assert_eq!(notes.lines().count(), lines, "{name}: {notes}");
        assert_eq!(results["publish"]["data"]["lines"], lines, "{name}: {notes}");
        assert!(notes.starts_with("# Release notes\n"), "{name}: {notes}");
        assert!(notes.lines().all(|line| line.chars().count() <= 100), "{name}: {notes}");
    }
}

#[test]
fn documents_have_no_broken_links() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = folder.path().to_str().unwrap();
    let file = "examples/doc-triage/triage.json";
    for documents in ["*.md", "examples/**/*.md"] {
        let input = json!(documents).to_string();
        let no = "ask=\"reject\"";
        let state = answer(&["run", "-q", file, "-i", &input, "--answer", no, "--artifacts", artifacts]);
        let report = state["read"].as_str().unwrap();
        assert!(report.contains(" found.") && !report.contains("broken link"), "{report}");
        assert_eq!(state["note"], "written to documents-for-the-record.md", "{state}");
    }
}

#[test]
fn metrics_are_those_of_this_repository() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = folder.path().to_str().unwrap();
    for (limit, finding) in [("limit=100", "- `crates/"), ("limit=100000", "- No file is too long.")] {
        let file = "examples/metrics-digest/digest.json";
        let output = answer(&["run", "-q", file, "-p", limit, "--artifacts", artifacts]);
        let headline = output["headline"].as_str().unwrap();
        let digest = std::fs::read_to_string(folder.path().join("files/digest.md")).unwrap();
        assert!(digest.starts_with(&format!("# {headline}\n")), "{digest}");
        assert!(digest.contains("| sinew-plan |") && digest.contains(finding), "{digest}");
    }
}

#[test]
fn findings_of_the_linter_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = folder.path().to_str().unwrap();
    let file = "examples/lint-report/lint.json";
    // One crate: a script that counts the findings of all takes long on a machine that does much else.
    let output = answer(&["run", "-q", file, "--artifacts", artifacts, "-p", "message=crates/sinew-mesh"]);
    let report = std::fs::read_to_string(folder.path().join("files/lint.md")).unwrap();
    let heading = report.lines().next().unwrap();
    assert_eq!(output["response"], format!("{}: see lint.md", &heading["# ".len()..]));
    let listed = report.lines().filter(|line| line.starts_with("- `crates/")).count();
    assert!(listed > 0 && heading.starts_with(&format!("# {listed} findings in ")), "{report}");
}

#[test]
fn licences_are_judged_by_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (json!("MIT"), "none"),
        (json!("GPL-3.0 OR MIT"), "none"),
        (json!("GPL-3.0/MIT"), "none"),
        (json!("GPL-3.0 AND MIT"), "high"),
        (json!("(GPL-3.0 OR MIT) AND Apache-2.0 WITH LLVM-exception"), "none"),
        (json!("MIT AND (GPL-3.0 OR (GPL-2.0 AND MIT))"), "high"),
        (json!("GPL-3.0 WITH LLVM-exception"), "high"),
        (json!("MIT OR"), "none"),
        (json!(""), "high"),
        (Value::Null, "high"),
    ];
    for (licence, level) in cases {
        let request = json!({
            "package": {
                "name": "p", "version": "1.0.0", "licence": licence, "source": "registry", "pinned": true, "copies": 1,
                "subtree": 0, "direct": false, "build_script": false
            },
            "policy": {
                "licences": ["MIT", "Apache-2.0 WITH LLVM-exception"], "points": {"licence": 5}, "large_subtree": 9,
                "levels": {"low": 1, "medium": 3, "high": 5}
            }
        });
        let (request, artifacts) = (request.to_string(), folder.path().to_str().unwrap());
        let agent = "examples/dependency-review/agent-cards/risk-assessor.agent.yaml";
        let output = answer(&["agent", "call", agent, "-i", &request, "--artifacts", artifacts]);
        assert_eq!(output["level"], level, "{licence}");
    }
}
