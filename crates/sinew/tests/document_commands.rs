//! Commands of documents, run as they stand there: in a copy of the checkout, or on a mesh of their own.
//!
//! A block is fenced as `console`. Words behind that say how it is run: `edited` belongs to an edit that the text asks the
//! reader for (its edits are in [`EDITS`]), `exit=N` is the exit code of its last command, `by-hand` cannot be run here, and
//! a reason stands behind it in the test. Each shown line must be in the output, times and ids aside; `…` stands for others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Role, World};

/// Documents whose commands need no server.
const OFFLINE: [&str; 9] = [
    "CONTRIBUTING.md",
    "agent-cards/README.md",
    "examples/claims/README.md",
    "examples/doc-triage/README.md",
    "examples/lint-report/README.md",
    "examples/metrics-digest/README.md",
    "examples/orders/README.md",
    "examples/release-notes/README.md",
    "examples/support-desk/README.md",
];

/// Documents whose commands other tests run, or nothing can: a reason each.
const ELSEWHERE: [(&str, &str); 20] = [
    ("README.md", "transcripts::readme types it"),
    ("AGENTS.md", "commands of the build"),
    ("crates/sinew-chaos/README.md", "commands of the build"),
    ("crates/sinew/src/templates/python/README.md", "examples::projects build it"),
    ("crates/sinew/src/templates/rust/README.md", "examples::projects build it"),
    ("deploy/README.md", "the_commands_of_deployment_print_accounts"),
    ("docs/calling.md", "sinew-gateway runs its examples"),
    ("docs/catalogue.md", "cli::tests parses them; sinew-gateway searches"),
    ("docs/console.md", "gateways_answer_as_their_pages_show"),
    ("docs/gateway.md", "gateways_answer_as_their_pages_show"),
    ("docs/mcp.md", "gateways_answer_as_their_pages_show"),
    ("docs/operations.md", "its commands follow a restored backup; journeys run them"),
    ("docs/releasing.md", "a release build takes a quarter of an hour"),
    ("docs/testing.md", "commands of the build"),
    ("docs/write-a-workflow.md", "a_first_workflow_is_created_run_and_tested"),
    ("tests/journeys/README.md", "commands of the build"),
    ("examples/dependency-review/README.md", "transcripts::readme types the same command"),
    ("examples/local-model/README.md", "local_model types it where the model is"),
    ("examples/python-agent/README.md", "examples install its package"),
    ("fuzz/README.md", "needs a nightly toolchain"),
];

/// Edits that `examples/orders/README.md` asks for, in the order of its blocks: text of `orders.yaml`, and what replaces it.
const EDITS: [(&str, &str); 3] = [
    ("id: reject\n", ""),
    ("discount_percent: 15", "discount_percent: 20"),
    ("lookup.output.customer.tier", "lookup.output.customer.teir"),
];

/// Parts of a checkout that commands of documents read.
const COPIED: [&str; 8] =
    ["examples", "agent-cards", "crates", "docs", "deploy", "Cargo.toml", "Cargo.lock", "CHANGELOG.md"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A fenced block of commands.
struct CommandBlock {
    /// Place of its first line.
    place: String,
    /// Words behind `console`.
    marks: BTreeSet<String>,
    /// Commands, each with the lines that are shown below it.
    commands: Vec<(String, Vec<String>)>,
}

impl CommandBlock {
    fn exit_code(&self) -> i32 {
        let mark = self.marks.iter().find_map(|mark| mark.strip_prefix("exit="));
        mark.map_or(0, |code| code.parse().expect("a number"))
    }
}

/// Reads the blocks of a document. Without a prompt in it, every line of a block is a command.
fn blocks(document: &str) -> Vec<CommandBlock> {
    let text = std::fs::read_to_string(root().join(document)).expect(document);
    let mut found: Vec<CommandBlock> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(marks) = line.strip_prefix("```console") else { continue };
        let marks = marks.split_whitespace().map(str::to_owned).collect();
        let inside: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        let has_prompt = inside.iter().any(|line| line.starts_with("$ "));
        let mut block =
            CommandBlock { place: format!("{document}:{}", number + 2), marks, commands: Vec::new() };
        let mut is_continued = false;
        for line in inside {
            let command = if has_prompt { line.strip_prefix("$ ") } else { Some(line) };
            match (command, block.commands.last_mut()) {
                (_, Some((command, _))) if is_continued => {
                    *command = format!("{}{}", command.trim_end_matches('\\'), line.trim_start());
                }
                (Some(command), _) => block.commands.push((command.to_owned(), Vec::new())),
                (None, Some((_, shown))) => shown.push(line.to_owned()),
                (None, None) => panic!("{}: output before a command: {line}", block.place),
            }
            is_continued = line.ends_with('\\');
        }
        found.push(block);
    }
    found
}

fn checkout(world: &World) {
    for part in COPIED {
        let copied = Command::new("cp").arg("-r").arg(root().join(part)).arg(world.path()).status().unwrap();
        assert!(copied.success(), "{part}");
    }
}

/// A shell that reads this line; `cargo run -q -p sinew --` is the program that is built already.
fn shell(world: &World, line: &str) -> Command {
    let line = line.replace("cargo run -q -p sinew --", "sinew");
    let programs = Path::new(env!("CARGO_BIN_EXE_sinew")).parent().unwrap();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> =
        std::iter::once(programs.to_owned()).chain(std::env::split_paths(&others)).collect();
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(world.path()).stdin(Stdio::null());
    command.env("PATH", std::env::join_paths(path).unwrap()).env("USER", "ada").env("NO_COLOR", "1");
    command.env("XDG_CONFIG_HOME", world.path().join("config"));
    command.env("XDG_STATE_HOME", world.path().join("state"));
    for variable in ["NATS_CONTEXT", "NATS_USER", "NATS_PASSWORD", "SINEW_NAMESPACE", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    if world.url.is_empty() {
        command.env_remove("NATS_URL")
    } else {
        command.env("NATS_URL", &world.url)
    };
    command
}

/// A line without times, ids and the width of columns.
fn comparable(line: &str) -> String {
    let line = regex::Regex::new(r"\.sinew/executions/[a-z0-9]+(/files)?").unwrap().replace_all(line, "ID");
    let word = |word: &str| {
        let time = regex::Regex::new(r"^[\d.]+(ms|s|m[\d]+s)[,)]?$").unwrap();
        if time.is_match(word) { "TIME".to_owned() } else { word.to_owned() }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Runs a block and returns what is wrong with it.
fn run(world: &World, block: &CommandBlock) -> Vec<String> {
    let mut wrong = Vec::new();
    for (nth, (line, shown)) in block.commands.iter().enumerate() {
        let is_last = nth + 1 == block.commands.len();
        let output = shell(world, line).output().expect("a shell");
        let said = [output.stdout.as_slice(), b"\n", output.stderr.as_slice()].concat();
        let said = String::from_utf8_lossy(&said);
        let wanted = if is_last { block.exit_code() } else { 0 };
        if output.status.code() != Some(wanted) {
            wrong.push(format!("{}: $ {line}\nended with {:?}:\n{said}", block.place, output.status.code()));
            continue;
        }
        let seen: Vec<String> = said.lines().map(comparable).collect();
        let missing: Vec<&String> = shown
            .iter()
            .filter(|shown| !shown.trim_start().starts_with('…') && !seen.contains(&comparable(shown)))
            .collect();
        if !missing.is_empty() {
            wrong.push(format!("{}: $ {line}\nshows {missing:#?}\nand prints\n{said}", block.place));
        }
    }
    wrong
}

/// Commands of the project's build are run by the build.
fn is_of_build(line: &str) -> bool {
    let line = line.split("# ").next().unwrap_or(line);
    let own = line.contains("cargo run -q -p sinew --");
    !own && ["cargo ", "bash ", "TRYCMD="].iter().any(|start| line.starts_with(start))
}

#[test]
fn commands_of_documents_print_what_is_shown() {
    let world = World::at(String::new());
    checkout(&world);
    let orders = world.path().join("examples/orders/orders.yaml");
    let whole = std::fs::read_to_string(&orders).unwrap();
    let mut edits = EDITS.iter();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in OFFLINE {
        for mut block in blocks(document) {
            block.commands.retain(|(line, _)| !is_of_build(line) && !line.contains("--update"));
            if block.marks.contains("edited") {
                let edit = edits.next().expect("an edit for each block that needs one");
                std::fs::write(&orders, edited(&whole, *edit)).unwrap();
            }
            count += block.commands.len();
            wrong.extend(run(&world, &block));
            std::fs::write(&orders, &whole).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 30 && edits.next().is_none(), "{count} commands were run");
}

/// The guide to workflows starts in an empty folder.
#[test]
fn a_first_workflow_is_created_run_and_tested() {
    let world = World::at(String::new());
    let blocks = blocks("docs/write-a-workflow.md");
    let count: usize = blocks.iter().map(|block| block.commands.len()).sum();
    let wrong: Vec<String> = blocks.iter().flat_map(|block| run(&world, block)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 12, "{count} commands were run");
}

/// The file after an edit of the text; the first edit is a typo within one node.
fn edited(whole: &str, (from, to): (&str, &str)) -> String {
    if !to.is_empty() {
        assert!(whole.contains(from), "orders.yaml has no {from}");
        return whole.replacen(from, to, 1);
    }
    let (before, node) = whole.split_once(from).expect("the node");
    format!("{before}{from}{}", node.replacen("depends_on: [accept]", "depends_on: [acept]", 1))
}

#[test]
fn every_document_with_commands_is_known() {
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let with_commands: BTreeSet<&str> = listed.lines().filter(|path| !blocks(path).is_empty()).collect();
    assert!(with_commands.len() > 10, "the checkout lists {with_commands:?}");
    let known: BTreeSet<&str> =
        OFFLINE.into_iter().chain(ELSEWHERE.iter().map(|(document, _)| *document)).collect();
    let unknown: Vec<_> = with_commands.difference(&known).collect();
    assert!(unknown.is_empty(), "no test runs the commands of {unknown:?}");
}

#[test]
fn the_commands_of_deployment_print_accounts() {
    let world = World::at(String::new());
    let mut printed = 0;
    for block in blocks("deploy/README.md") {
        for (line, _) in block.commands.iter().filter(|(line, _)| line.starts_with("sinew ")) {
            let line = line
                .replace("/etc/nats/", "./")
                .replace("--user …", "--user ops:admin:env:NATS_OPS_PASSWORD");
            let mut command = shell(&world, &line);
            for user in ["PROVISION", "EXECUTOR", "GREETER", "OPS", "STRANGER"] {
                command.env(format!("NATS_{user}_PASSWORD"), "not-a-secret-7f3a");
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            let accounts = std::fs::read_to_string(world.path().join("accounts.conf")).unwrap();
            assert!(accounts.contains("SINEW") && accounts.contains("ops"), "{accounts}");
            printed += 1;
        }
    }
    assert_eq!(printed, 2);
}

const GREET: &str = "name: greet\nworkflow:\n  description: d\n  nodes:\n    \
    - {id: g, type: agent, agent_name: greeter, input: {name: \"{{workflow.input.name}}\"}}\n  \
    output_mapping: {text: \"{{g.output.text}}\"}\n";

#[test]
fn gateways_answer_as_their_pages_show() {
    for page in ["docs/console.md", "docs/gateway.md", "docs/mcp.md"] {
        check_gateway_page(page);
    }
}

fn check_gateway_page(page: &str) {
    let (world, _executor) = World::new();
    world.write("greet.yaml", GREET);
    world.ok(&["workflow", "deploy", "greet.yaml"]);
    let agent = root().join("agent-cards/greeter.agent.yaml");
    let _agent = world.serve(&["serve", "agent", agent.to_str().unwrap()]);
    world.online(&["greeter", "greet"]);
    let mut gateway: Option<Role> = None;
    let mut address = String::new();
    for block in blocks(page) {
        for (line, _) in block.commands {
            if line.starts_with("sinew serve gateway") {
                // Other tests may have the usual port.
                let line = line.replace(":8234", ":0");
                let mut child =
                    shell(&world, &format!("exec {line}")).stderr(Stdio::piped()).spawn().unwrap();
                let said = crate::common::Said::by(child.stderr.take().unwrap());
                let told = said.wait_for("http://");
                let at = told.split("http://").nth(1).unwrap();
                let end = at.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap();
                end.clone_into(&mut address);
                gateway = Some(Role(child));
                continue;
            }
            let output = shell(&world, &line.replace("127.0.0.1:8234", &address)).output().unwrap();
            let whole = String::from_utf8_lossy(&output.stdout).into_owned();
            // The console answers with pages.
            if !line.contains("/console") {
                let answer = serde_json::from_str::<serde_json::Value>(&whole);
                answer.unwrap_or_else(|error| panic!("{line}: {error}: {whole}"));
            }
            let wanted = match &line {
                line if line.contains("idempotency_key") => "\"new\":true",
                line if line.contains("Ada") => "Hello, Ada!",
                line if line.contains("/console") => "href=\"/console/workflows/greet\"",
                line if line.contains("--url") => "/mcp",
                line if line.starts_with("sinew mcp config") => "nats://localhost:4222",
                _ => "\"greet\"",
            };
            assert!(whole.contains(wanted), "{line}: {whole}");
        }
    }
    assert_eq!(gateway.expect("the page starts a gateway").stop(), Some(0));
}
