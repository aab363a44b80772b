//! Transcripts of commands in `cmd/`, and rules that hold for every command.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ORDERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/good/orders.yaml");
const TEAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/team/support.json");
const BAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/bad");

/// A change to an export.
type Damage = fn(&mut Value);

/// Transcripts: what people see. `TRYCMD=overwrite cargo test` writes them anew.
#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .default_bin_path(env!("CARGO_BIN_EXE_sinew"))
        .register_bin("sinew", Path::new(env!("CARGO_BIN_EXE_sinew")))
        .env("NO_COLOR", "1")
        .case("tests/cmd/*.trycmd");
}

fn sinew(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(args).current_dir(folder).env("XDG_STATE_HOME", folder.join(".state"));
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it writes UTF-8")
}

/// Runs a command that must succeed, and gives its stdout.
fn ok(folder: &Path, args: &[&str]) -> String {
    let output = sinew(folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[test]
fn json_is_one_document_and_yaml_and_lines_agree_with_it() {
    let here = tempfile::tempdir().unwrap();
    let commands: &[&[&str]] = &[
        &["workflow", "validate", ORDERS],
        &["workflow", "validate", BAD],
        &["workflow", "list", ORDERS],
        &["workflow", "describe", ORDERS],
        &["workflow", "convert", ORDERS, "--plan"],
        &["workflow", "render", ORDERS],
        &["schema", "workflow"],
        &["schema", "workflow", "--dialect", "agentflow"],
        &["schema", "agent"],
        &["schema", "test"],
        &["workflow", "convert", TEAM, "--try", "c3", "--sample", "{\"response\": \"hi\"}"],
        &["workflow", "migrate", TEAM],
        &["workflow", "nodes"],
        &["workflow", "nodes", "FLOW.IF"],
        &["explain", "1003"],
        &["explain", "--list"],
        &["completions", "bash"],
        &["man", "man1"],
    ];
    for command in commands {
        let run = |format: &str| {
            let mut args = command.to_vec();
            args.extend(["-o", format]);
            let output = sinew(here.path(), &args);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {}", text(&output.stderr));
            text(&output.stdout).to_owned()
        };
        let json: Value =
            serde_json::from_str(&run("json")).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let yaml: Value =
            serde_saphyr::from_str(&run("yaml")).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert_eq!(yaml, json, "{command:?}");
        for line in run("jsonl").lines() {
            serde_json::from_str::<Value>(line)
                .unwrap_or_else(|error| panic!("{command:?}: {error}: {line}"));
        }
    }
}

#[test]
fn failures_leave_stdout_alone_and_say_so_as_json_too() {
    let here = tempfile::tempdir().unwrap();
    let commands: &[(&[&str], i32, &str)] = &[
        (&["workflow", "validate", "none.yaml"], 3, "SINEW-8002"),
        (&["workflow", "validate", "."], 1, "SINEW-8010"),
        (&["workflow", "list"], 3, "SINEW-8010"),
        (&["workflow", "describe", ORDERS, "--workflow", "x"], 3, "SINEW-8004"),
        (&["workflow", "render", ORDERS, "--dialect", "x"], 2, "SINEW-8001"),
        (&["explain", "9999"], 3, "SINEW-8011"),
        (&["schema", "workflow", "--dialect", "x"], 2, "SINEW-8001"),
        (&["new", "agent", "a/b"], 2, "SINEW-8001"),
    ];
    for (command, exit, code) in commands {
        let plain = sinew(here.path(), command);
        assert_eq!((plain.status.code(), text(&plain.stdout)), (Some(*exit), ""), "{command:?}");
        assert!(text(&plain.stderr).contains(code), "{command:?}: {}", text(&plain.stderr));
        let mut args = command.to_vec();
        args.extend(["-o", "json"]);
        let machine = sinew(here.path(), &args);
        assert_eq!((machine.status.code(), text(&machine.stdout)), (Some(*exit), ""), "{command:?}");
        let error: Value = serde_json::from_slice(&machine.stderr).expect("one JSON object");
        assert_eq!(error["error"]["code"], *code, "{command:?}");
    }
}

#[test]
fn sarif_of_several_files_is_one_run() {
    let output = sinew(Path::new(BAD), &["workflow", "validate", ".", "--format", "sarif"]);
    let sarif: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sarif["runs"].as_array().unwrap().len(), 1);
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(results.len() >= 4, "{results:#?}");
    for result in results {
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]), "no rule for {result}");
    }
}

#[test]
fn a_file_from_stdin_is_checked_like_any_other() {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["workflow", "validate", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"nodes: [\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("<stdin>:1:8: SINEW-1002"), "{}", text(&output.stdout));
}

#[test]
fn node_plugins_work_where_they_are_dropped() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plugin");
    let folder = tempfile::tempdir().unwrap();
    // From another folder too: plugins and their agents lie beside the file, not where somebody stands.
    for (at, file) in [(&*fixture, "greeting.json".into()), (folder.path(), fixture.join("greeting.json"))] {
        let artifacts = folder.path().join("artifacts");
        let (file, artifacts) = (file.to_str().unwrap(), artifacts.to_str().unwrap());
        let said = ok(at, &["run", "-q", file, "-i", r#"{"message": "hi"}"#, "--artifacts", artifacts]);
        assert!(said.contains("HI!!"), "{said}");
    }
}

#[test]
fn what_new_makes_works_and_is_never_overwritten() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    ok(here, &["new", "workflow", "hello"]);
    ok(here, &["new", "agent", "greeter"]);
    for kind in ["command", "http"] {
        ok(here, &["new", "agent", kind, "--kind", kind]);
        ok(here, &["agent", "describe", kind]);
    }
    ok(here, &["workflow", "validate", "hello.yaml", "--strict"]);
    let answer = ok(here, &["run", "hello.yaml", "-i", r#"{"name": "Ada"}"#]);
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["text"], "Hello, Ada!");
    let echo = ok(here, &["agent", "call", "command", "--trust", "-i", r#"{"n": 1}"#]);
    assert_eq!(serde_json::from_str::<Value>(&echo).unwrap()["n"], 1);
    // The schema that the files name is there, beside each of them.
    for file in ["hello.yaml", "agent-cards/greeter.agent.yaml"] {
        let path = here.join(file);
        let content = std::fs::read_to_string(&path).unwrap();
        let (_, schema) = content.lines().next().unwrap().split_once("$schema=").expect("a line for editors");
        let schema = std::fs::read(path.parent().unwrap().join(schema)).expect("the schema is there");
        assert!(serde_json::from_slice::<Value>(&schema).unwrap().is_object());
        std::fs::write(&path, "mine").unwrap();
    }
    for args in [["new", "workflow", "hello"], ["new", "agent", "greeter"]] {
        assert_eq!(sinew(here, &args).status.code(), Some(6), "{args:?}");
    }
    assert_eq!(std::fs::read_to_string(here.join("hello.yaml")).unwrap(), "mine");
}

#[test]
fn new_workflows_of_all_dialects_validate_and_run() {
    for (dialect, file, input, greeting) in [
        ("sam", "hello.yaml", "name=Ada", "/text"),
        ("agentflow", "hello.json", "text=Ada", "/greet"),
        ("agentteam", "hello.json", "name=Ada", "/content"),
        ("covalt", "hello.json", "text=Ada", "/response"),
        ("sweny", "hello.yaml", "name=Ada", "/results/greet/data/text"),
    ] {
        let here = tempfile::tempdir().unwrap();
        let here = here.path();
        ok(here, &["new", "workflow", "hello", "--dialect", dialect]);
        ok(here, &["new", "agent", "greeter"]);
        ok(here, &["workflow", "validate", file, "--strict"]);
        let output = ok(here, &["run", file, "-q", "-p", input, "--default-agent", "work=greeter"]);
        let output: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(output.pointer(greeting), Some(&Value::from("Hello, Ada!")), "{dialect}: {output}");
        // The file names its schema, which is the one of its dialect.
        let content = std::fs::read_to_string(here.join(file)).unwrap();
        let schema = content.split([' ', '=', '"', '\n']).find(|word| word.starts_with(".sinew/schema/"));
        let schema = std::fs::read_to_string(here.join(schema.expect("a schema for editors"))).unwrap();
        assert_eq!(schema, ok(here, &["schema", "workflow", "--dialect", dialect]), "{dialect}");
    }
}

#[test]
fn an_execution_is_laid_over_the_drawing() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let agents = here.join("agent-cards");
    std::fs::create_dir(&agents).unwrap();
    for (name, source) in [
        ("checker", "lambda input: {'kind': 'large'}"),
        ("pricing", "lambda input: {'price': 100 // input['line']}"),
    ] {
        let file = format!("name: {name}\nrun: {{script: {{source: \"{source}\"}}}}\n");
        std::fs::write(agents.join(format!("{name}.agent.yaml")), file).unwrap();
    }
    let run = |lines: &str, export: &str| {
        let input = format!(r#"{{"lines": {lines}}}"#);
        sinew(here, &["run", ORDERS, "--agents", "agent-cards", "-i", &input, "--export", export])
            .status
            .code()
    };
    assert_eq!(run("[1, 2, 4]", "good.json"), Some(0));
    assert_eq!(run("[0]", "bad.json"), Some(1));
    let drawn =
        |export: &str| ok(here, &["workflow", "render", "--execution", export, "--format", "mermaid"]);
    let (good, bad) = (drawn("good.json"), drawn("bad.json"));
    for (drawing, line) in [
        (&good, "✓ succeeded · 3 ok"),
        (&good, "each_line -- \"each item ×3\" --> price"),
        (&good, "approve(\"<b>Agent</b><br/>checker<br/>Approve<br/>↷ skipped\")"),
        (&good, "Finish([\"Finish<br/>✓ succeeded\"])"),
        (&bad, "✗ failed · 1 failed"),
        (&bad, "Finish([\"Finish<br/>✗ failed\"])"),
    ] {
        assert!(drawing.contains(line), "no {line} in\n{drawing}");
    }
    // The edge to the branch that was not taken is drawn as such.
    let edges: Vec<&str> = good.lines().filter(|line| line.contains("--> ")).collect();
    let untaken = edges.iter().position(|line| line.contains("--> approve")).unwrap();
    let style = good.lines().find(|line| line.contains("linkStyle") && line.contains("dasharray")).unwrap();
    let numbers = style.trim().trim_start_matches("linkStyle ").split(' ').next().unwrap();
    assert!(numbers.split(',').any(|n| n == untaken.to_string()), "{style}\n{good}");
    for (file, magic) in [("run.png", &b"\x89PNG"[..]), ("run.svg", b"<svg")] {
        ok(here, &["workflow", "render", ORDERS, "--execution", "bad.json", "-O", file]);
        assert!(std::fs::read(here.join(file)).unwrap().starts_with(magic), "{file}");
    }
}

#[test]
fn damaged_exports_are_refused() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let whole = ["run", ORDERS, "--dry-run", "--quiet", "-i", r#"{"lines": []}"#, "--export", "run.json"];
    sinew(here, &whole);
    let export: Value = serde_json::from_slice(&std::fs::read(here.join("run.json")).unwrap()).unwrap();
    let change: &[(&str, Damage)] = &[
        ("format", |file| file["format"] = 2.into()),
        ("format", |file| file["format"] = Value::Null),
        ("plan", |file| file["plan"]["nodes"] = Value::Null),
        ("the journal is of plan", |file| file["plan"]["name"] = "other".into()),
        ("round 1: the fact", |file| {
            for fact in file["rounds"][0]["facts"].as_array_mut().unwrap() {
                if fact["fact"] == "activated" {
                    fact["node"] = 999.into();
                }
            }
        }),
        ("round 1: the fact", |file| {
            // The first activation is forgotten: what follows speaks of one that never was.
            let facts = file["rounds"][0]["facts"].as_array_mut().unwrap();
            let first = facts.iter().position(|fact| fact["fact"] == "activated").unwrap();
            facts.remove(first);
        }),
    ];
    for (why, damage) in change {
        let mut damaged = export.clone();
        damage(&mut damaged);
        std::fs::write(here.join("damaged.json"), damaged.to_string()).unwrap();
        let output = sinew(here, &["workflow", "render", "--execution", "damaged.json"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{why}: {said}");
        assert!(said.contains(why) && said.contains("SINEW-8013"), "{why}: {said}");
    }
}

/// Commands below one, as its help lists them.
fn listed_below(folder: &Path, command: &[&str]) -> Vec<String> {
    let help = ok(folder, &[command, &["--help"]].concat());
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Commands that do something, by the words that call them.
fn leaf_commands(folder: &Path, command: &[&str]) -> Vec<Vec<String>> {
    let below = listed_below(folder, command);
    if below.is_empty() {
        return vec![command.iter().map(|word| (*word).to_owned()).collect()];
    }
    below.iter().flat_map(|name| leaf_commands(folder, &[command, &[name.as_str()]].concat())).collect()
}

/// Each command has a short help that a terminal holds, examples in the long one, and a page with the same options.
#[test]
fn every_command_has_a_short_help_examples_and_a_page() {
    let here = tempfile::tempdir().unwrap();
    ok(here.path(), &["man", "pages"]);
    let commands = leaf_commands(here.path(), &[]);
    let option = regex::Regex::new(r"--[a-z][a-z-]*").unwrap();
    assert!(commands.len() > 60, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let short = ok(here.path(), &[words.as_slice(), &["-h"]].concat());
        let usage = format!("Usage: sinew {}", words.join(" "));
        assert!(short.contains(&usage), "{words:?} -h: {short}");
        assert!(short.lines().count() <= 24, "{words:?} -h: {} lines\n{short}", short.lines().count());
        assert!(short.contains("Examples:"), "{words:?} -h: {short}");
        // An option that is used most stays.
        assert!(words != ["run"] || short.contains("--input"), "{short}");
        let help = ok(here.path(), &[words.as_slice(), &["--help"]].concat());
        assert!(help.contains(&usage) && help.contains("Examples:"), "{words:?} --help: {help}");
        let page = here.path().join("pages").join(format!("sinew-{}.1", words.join("-")));
        let page =
            std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let page = page.replace("\\-", "-");
        for line in
            help.lines().map(str::trim).filter(|line| line.starts_with('-') && !line.starts_with("- "))
        {
            let option = option.find(line).expect(line).as_str();
            assert!(page.contains(option), "{words:?}: the page lacks {option}");
        }
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(ok(here.path(), &["completions", shell]).contains("COMPLETE"), "{shell}");
    }
}

/// A build says which commit it is of.
#[test]
fn the_version_names_commit_and_date() {
    let here = tempfile::tempdir().unwrap();
    let said = ok(here.path(), &["--version"]);
    let rule = regex::Regex::new(r"^sinew \d+\.\d+\.\d+ \([0-9a-f]{7,40} \d{4}-\d\d-\d\d\)\n$").unwrap();
    assert!(rule.is_match(&said), "{said}");
}

/// A drawing with an execution laid over it says at each node what it waits for.
#[test]
fn overlays_say_what_is_waited_for() {
    let here = tempfile::tempdir().unwrap();
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/record/waiting.json");
    for format in ["mermaid", "terminal", "dot", "svg"] {
        let drawn = ok(here.path(), &["workflow", "render", "--execution", record, "--format", format]);
        assert!(drawn.contains("waits for"), "{format}: {drawn}");
    }
}

/// Texts in data that a loader of workflow files would act on.
const HOSTILE: &str =
    r#"["${CANARY_TOKEN}", "$${CANARY_TOKEN}", "${NOT_SET_ANYWHERE}", "${VAR:-x}", "!include echo.yaml"]"#;
const ECHO_FLOW: &str = r#"
workflow:
  description: Says what it was told. A text of the file is one too.
  nodes:
    - {id: echo, type: agent, agent_name: Echo, instruction: "run echo ${CANARY_TOKEN}", input: {it: "{{workflow.input.it}}"}}
    - {id: after, type: agent, agent_name: Echo, depends_on: [echo], input: {it: "{{echo.output.it}}"}}
  output_mapping: {it: "{{after.output.it}}"}
"#;
const ECHO: &str = "name: Echo\nrun: {script: {source: 'lambda request: request'}}\n";

/// A folder with the workflow `echo.yaml`, its agent and an input.
fn echo_folder() -> tempfile::TempDir {
    let here = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("echo.yaml", ECHO_FLOW.to_owned()),
        ("echo.agent.yaml", ECHO.to_owned()),
        ("input.json", format!("{{\"it\": {HOSTILE}}}")),
        ("value.json", HOSTILE.to_owned()),
        ("included.yaml", "it: !include echo.yaml\n".to_owned()),
        ("tagged.yaml", "it: !!str 1\n".to_owned()),
        ("anchored.yaml", "a: &a ['${CANARY_TOKEN}']\nit: *a\n".to_owned()),
    ] {
        std::fs::write(here.path().join(name), content).unwrap();
    }
    here
}

/// Runs a command with a canary in its environment and this on its standard input. Kills it after a minute.
fn fed(folder: &Path, args: &[&str], stdin: &str) -> Output {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(args)
        .current_dir(folder)
        .env("CANARY_TOKEN", "canary-in-the-environment")
        .env("CANARY_REGION", "eu")
        .env("NATS_CANARY", "canary-of-nats")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let pid = child.id();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(std::time::Duration::from_mins(1)) else {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        panic!("sinew {args:?} hangs");
    };
    output.unwrap()
}

#[test]
fn data_arrives_as_written_whichever_way_it_comes() {
    let here = echo_folder();
    let input = format!("{{\"it\": {HOSTILE}}}");
    let param = format!("it={HOSTILE}");
    let given = format!("echo={input}");
    let commands: &[(&[&str], &str)] = &[
        (&["run", "echo.yaml", "-i", "@input.json"], ""),
        (&["run", "echo.yaml", "-i", "-"], &input),
        (&["run", "echo.yaml", "-i", "@/dev/stdin"], &input),
        (&["run", "echo.yaml", "-i", &input], ""),
        (&["run", "echo.yaml", "-p", &param], ""),
        (&["run", "echo.yaml", "--given", &given], ""),
        (&["agent", "call", "Echo", "-i", "@input.json"], ""),
        (&["agent", "call", "Echo", "-i", "-"], &input),
    ];
    let expected: Value = serde_json::from_str(HOSTILE).unwrap();
    for (command, stdin) in commands {
        let output = fed(here.path(), &[*command, &["-o", "json"]].concat(), stdin);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["output"]["it"], expected, "{command:?}");
        assert!(!text(&output.stdout).contains("canary-in-the-environment"), "{command:?}");
    }
    let anchored = fed(here.path(), &["run", "echo.yaml", "-i", "@anchored.yaml", "-o", "json"], "");
    let document: Value = serde_json::from_slice(&anchored.stdout).unwrap();
    assert_eq!(document["output"]["it"], serde_json::json!(["${CANARY_TOKEN}"]));
    // Tags and includes are refused with their place.
    for (file, place) in [("included.yaml", "included.yaml:1:14"), ("tagged.yaml", "tagged.yaml:1:11")] {
        let refused = fed(here.path(), &["run", "echo.yaml", "-i", &format!("@{file}")], "");
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{file}: {told}");
        assert!(told.contains(place) && told.contains("SINEW-1012") && told.contains("hint"), "{told}");
    }
    // Texts of a file that is not an application file arrive as written too, and stubs of tests do.
    let asks = fed(here.path(), &["workflow", "convert", "echo.yaml", "--plan"], "");
    assert!(text(&asks.stdout).contains("run echo ${CANARY_TOKEN}"), "{}", text(&asks.stdout));
    let case = format!(
        "workflow: echo.yaml\ncases:\n  - name: as written\n    input: {{it: 1}}\n    agents: {{Echo: {{output: {{it: {HOSTILE}}}}}}}\n    expect: {{status: success, output: {{it: {HOSTILE}}}}}\n"
    );
    std::fs::write(here.path().join("echo.test.yaml"), case).unwrap();
    let tested = fed(here.path(), &["test"], "");
    assert_eq!(tested.status.code(), Some(0), "{}{}", text(&tested.stdout), text(&tested.stderr));
}

/// Top of the file, its text, flags of the command, and the text or the code that comes of it.
type AllowedCase = (&'static str, &'static str, &'static [&'static str], Result<&'static str, &'static str>);

#[test]
fn application_files_read_what_the_caller_allows() {
    let here = echo_folder();
    let app = |head: &str, words: &str| {
        format!(
            "{head}apps:\n  - name: a\n    app_config:\n      name: said\n      workflow:\n        description: 'In {words}'\n        nodes: [{{id: echo, type: agent, agent_name: Echo, input: {{it: '{words}'}}}}]\n        output_mapping: {{it: '{{{{echo.output.it}}}}'}}\n"
        )
    };
    let cases: &[AllowedCase] = &[
        ("", "${CANARY_REGION}", &["--env", "CANARY_REGION"], Ok("eu")),
        ("env: [CANARY_REGION]\n", "${CANARY_REGION}", &[], Ok("eu")),
        ("", "${CANARY_REGION, us}", &[], Ok("us")),
        ("", "${CANARY_REGION}", &[], Err("SINEW-1017")),
        ("", "${NATS_CANARY}", &[], Err("SINEW-1018")),
        ("env: [NATS_CANARY]\n", "${NATS_CANARY}", &[], Err("SINEW-1018")),
        ("", "${NATS_CANARY}", &["--env", "NATS_CANARY"], Err("SINEW-1018")),
        ("", "${NOT_SET_ANYWHERE}", &["--env", "NOT_SET_ANYWHERE"], Err("SINEW-1016")),
        // A secret stays a reference, in the plan as in what agents are asked.
        ("", "${CANARY_TOKEN}", &["--env", "CANARY_TOKEN"], Ok("${CANARY_TOKEN}")),
        ("env: [CANARY_TOKEN]\n", "${CANARY_TOKEN}", &[], Ok("${CANARY_TOKEN}")),
        ("", "${CANARY_REGION}", &["--env-secret", "CANARY_REGION"], Ok("${CANARY_REGION}")),
    ];
    for (head, words, flags, expected) in cases {
        std::fs::write(here.path().join("app.yaml"), app(head, words)).unwrap();
        let commands: &[&[&str]] = &[
            &["run", "app.yaml", "-o", "json"],
            &["workflow", "validate", "app.yaml", "-o", "json"],
            &["workflow", "convert", "app.yaml", "--plan"],
            &["workflow", "list", "app.yaml", "-o", "json"],
        ];
        for command in commands {
            let output = fed(here.path(), &[*command, flags].concat(), "");
            let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(!told.contains("canary-"), "{command:?} {words} {flags:?} shows a secret: {told}");
            match (expected, command[1]) {
                (Err(code), "app.yaml" | "validate" | "convert") => {
                    assert!(!output.status.success() && told.contains(code), "{command:?} {words}: {told}");
                }
                (Ok(value), "app.yaml") => {
                    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
                    assert_eq!(document["output"]["it"], *value, "{words} {flags:?}");
                }
                (Ok(value), _) => assert!(
                    output.status.success() && told.contains(value) || command[1] == "validate",
                    "{command:?} {words}: {told}"
                ),
                (Err(_), _) => {}
            }
        }
    }
    let hinted = fed(here.path(), &["workflow", "validate", "app.yaml", "--env", "A-B"], "");
    assert_eq!(hinted.status.code(), Some(2), "{}", text(&hinted.stderr));
    std::fs::write(here.path().join("app.yaml"), app("", "${CANARY_REGION}")).unwrap();
    let hinted = fed(here.path(), &["workflow", "validate", "app.yaml"], "");
    assert!(text(&hinted.stdout).contains("add `--env CANARY_REGION`"), "{}", text(&hinted.stdout));
}

/// FIFOs, devices and files without an end are refused at once, wherever a file is named.
#[cfg(unix)]
#[test]
fn only_regular_files_within_their_limits_are_read() {
    let here = echo_folder();
    let fifo = here.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    std::fs::File::create(here.path().join("huge.json")).unwrap().set_len(1 << 40).unwrap();
    let write = |name: &str, content: &str| std::fs::write(here.path().join(name), content).unwrap();
    write("includes.yaml", "workflow: {nodes: [], description: !include fifo}\n");
    write("huge.yaml", "workflow: {nodes: [], description: !include huge.json}\n");
    write("script.agent.yaml", "name: Piped\nrun: {script: {file: fifo}}\n");
    let commands: &[(&[&str], &str)] = &[
        (&["run", "fifo"], "a FIFO"),
        (&["run", "/dev/zero"], "a device"),
        (&["run", "."], "a folder"),
        (&["run", "huge.json"], "larger than"),
        (&["workflow", "validate", "fifo"], "a FIFO"),
        (&["workflow", "validate", "huge.json"], "SINEW-1006"),
        (&["workflow", "validate", "includes.yaml"], "a FIFO"),
        (&["workflow", "validate", "huge.yaml"], "larger than"),
        (&["test", "fifo"], "a FIFO"),
        (&["run", "echo.yaml", "-i", "@fifo"], "a FIFO"),
        (&["run", "echo.yaml", "-i", "@/dev/zero"], "a device"),
        (&["run", "echo.yaml", "-i", "@huge.json"], "larger than"),
        (&["run", "echo.yaml", "-i", "{\"it\": 1}", "--agents", "fifo"], "a FIFO"),
        (&["agent", "list", "fifo"], "a FIFO"),
        (&["agent", "list", "script.agent.yaml"], "a FIFO"),
        (&["agent", "call", "Echo", "--agents", "echo.agent.yaml", "-i", "@fifo"], "a FIFO"),
        (&["execution", "describe", "./fifo"], "a FIFO"),
        (&["execution", "replay", "/dev/zero"], "a device"),
        (&["artifact", "put", "fifo", "--nats", "nats://127.0.0.1:1"], "a FIFO"),
        (&["mesh", "check", "--nats", "nats://127.0.0.1:1", "--creds", "fifo"], "a FIFO"),
        (&["mesh", "check", "--nats", "nats://127.0.0.1:1", "--nkey", "/dev/zero"], "a device"),
        (&["mesh", "check", "--nats", "nats://127.0.0.1:1", "--tlsca", "fifo"], "a FIFO"),
    ];
    for (command, why) in commands {
        let output = fed(here.path(), command, "");
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(!output.status.success() && told.contains(why), "{command:?}: {told}");
    }
    // Of several files in a folder, one that is too large is a finding like any other.
    let folder = fed(here.path(), &["workflow", "list", "."], "");
    assert_eq!(folder.status.code(), Some(0), "{}", text(&folder.stderr));
    assert!(text(&folder.stderr).contains("huge.json cannot be read"), "{}", text(&folder.stderr));
}

#[test]
fn the_time_of_a_command_counts_from_its_call() {
    let here = echo_folder();
    let write = |name: &str, content: &str| std::fs::write(here.path().join(name), content).unwrap();
    write("echo.agent.yaml", "name: Echo\nrun: {command: {argv: [sleep, '50'], grace: 100ms}}\n");
    // A server that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", silent.local_addr().unwrap());
    let on = ["--nats", &url, "--nats-timeout", "50s", "--timeout", "300ms"];
    let local = ["--trust", "--timeout", "300ms"];
    let commands: &[(&[&str], &[&str], i32)] = &[
        (&["run", "echo.yaml", "-i", "{\"it\": 1}"], &local, 5),
        (&["agent", "call", "Echo", "-i", "{}"], &local, 5),
        (&["run", "echo.yaml", "-i", "{\"it\": 1}"], &on, 5),
        (&["run", "echo.yaml", "-i", "{\"it\": 1}", "--detach"], &on, 5),
        (&["run", "deployed"], &on, 5),
        (&["tool", "call", "orders"], &on, 5),
        (&["agent", "call", "Echo", "-i", "{}"], &on, 5),
        (&["execution", "watch", "@latest"], &on, 5),
    ];
    for (command, flags, code) in commands {
        let begun = std::time::Instant::now();
        let output = fed(here.path(), &[*command, *flags].concat(), "");
        let took = begun.elapsed();
        assert_eq!(output.status.code(), Some(*code), "{command:?}: {}", text(&output.stderr));
        // Far from both 50 s, and generous to a machine that is busy.
        assert!(took < std::time::Duration::from_secs(20), "{command:?} took {took:?}");
    }
}

/// Addresses are fetched only on request, and never from this machine or its neighbours.
#[test]
fn urls_are_read_on_request_and_from_public_addresses_only() {
    let here = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/secret", listener.local_addr().unwrap());
    let node = format!("{{name: A, instruction: {{url: \"{url}\"}}}}");
    let file = format!("id: w\nname: W\ndescription: Reads.\nentry: a\nnodes:\n  a: {node}\nedges: []\n");
    std::fs::write(here.path().join("w.yaml"), file).unwrap();
    let run = ["run", "w.yaml", "--default-agent", "work=Nobody"];
    for (more, code) in [(None, "SOURCE_OFFLINE_REQUIRES_FETCH"), (Some("--fetch"), "SOURCE_URL_UNREACHABLE")]
    {
        let args: Vec<&str> = run.into_iter().chain(more).collect();
        let output = sinew(here.path(), &args);
        assert!(text(&output.stderr).contains(code), "{args:?}: {}", text(&output.stderr));
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the private address was asked");
}

/// A script that ends the process it runs in: the interpreter asks for an impossible allocation without a limit.
const ABORTING: &str = "lambda d: json.dumps([d], indent=10 ** 12)";

/// Every command that compiles or calls Python of a file does so in a worker: it outlives a script that ends its process,
/// and says so in its own words.
#[test]
fn no_command_evaluates_python_in_its_own_process() {
    let here = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(here.path().join(name), text).unwrap();
    write(
        "team.json",
        &serde_json::json!({
            "metadata": { "id": "w1", "name": "team" },
            "triggers": ["start"],
            "nodes": [
                { "id": "start", "name": "start", "type": "TRIGGER", "subtype": "MANUAL" },
                { "id": "merge", "name": "merge", "type": "FLOW", "subtype": "MERGE" },
            ],
            "connections": [
                { "id": "c1", "from_node": "start", "to_node": "merge", "conversion_function": ABORTING },
            ],
        })
        .to_string(),
    );
    let code = |id: &str, code: &str| serde_json::json!({ "id": id, "type": "code", "position": { "x": 1, "y": 0 }, "data": { "code": code } });
    write(
        "graph.json",
        &serde_json::json!({
            "name": "graph",
            "nodes": [
                { "id": "start", "type": "chat-start", "position": { "x": 0, "y": 0 }, "data": {} },
                code("first", ABORTING),
            ],
            "edges": [{ "id": "e1", "source": "start", "sourceHandle": "output", "target": "first", "targetHandle": "input" }],
        })
        .to_string(),
    );
    let agent = format!("name: Aborts\nrun: {{script: {{source: {}}}}}\n", serde_json::json!(ABORTING));
    write("aborts.agent.yaml", &agent);
    write(
        "flow.yaml",
        "workflow:\n  description: Asks.\n  version: \"1.0\"\n  nodes: [{id: a, type: agent, agent_name: Aborts, input: {}}]\n  output_mapping: {a: \"{{a.output}}\"}\n",
    );
    for (args, code, said) in [
        (&["run", "team.json"][..], 1, "SINEW-3004"),
        (&["run", "graph.json"], 1, "all memory"),
        (&["run", "flow.yaml", "--agents", "."], 1, "SINEW-3004"),
        (&["workflow", "convert", "team.json", "--try", "c1", "--sample", "1"], 1, "all memory"),
        (&["workflow", "validate", "team.json"], 0, ""),
    ] {
        let output = sinew(here.path(), args);
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {all}");
        assert!(all.contains(said), "{args:?}: {all}");
    }
}
