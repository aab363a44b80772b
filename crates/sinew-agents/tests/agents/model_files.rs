//! Files of model agents: what is refused, and where.

use sinew_agents::Agent;
use tempfile::TempDir;

use crate::fixture::environment;

const HEAD: &str = "name: x\nrun:\n  model:\n    use: [main]\n    models: {main: {provider: script}}\n";

/// The complaints about a file, each as `line:column code message`.
fn complaints(text: &str) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.agent.yaml");
    std::fs::write(&path, text).unwrap();
    let Err(found) = Agent::load_with(&path, &environment()) else { return Vec::new() };
    let line = |item: &sinew_source::Diagnostic| {
        let place = item.span.map_or_else(String::new, |span| format!("{}:{} ", span.line, span.column));
        format!("{place}{} {}", item.code, item.message)
    };
    found.items.iter().map(line).collect()
}

#[test]
fn complaints_have_places() {
    let mut wrong = Vec::new();
    for (more, expected) in [
        ("    budgett: {turns: 3}\n", "6:5 "),
        ("    budget: {turn: 3}\n", "6:14 "),
        ("    budget: {turns: 0}\n", "6:21 "),
        ("    taint: sometimes\n", "6:12 "),
        ("    tools: [{peer: A, speed: 1}]\n", "6:23 "),
        ("    tools: [{peer: A, max_result: 1}]\n", "6:35 "),
        (
            "    instruction: 'Key ${env:KEY}'\n",
            "6:18 SINEW-5212 an instruction cannot contain an environment variable",
        ),
        (
            "    instruction: 'Say {{input.text}}'\n",
            "6:18 SINEW-5212 an instruction cannot contain the input",
        ),
        ("    instruction_file: missing.md\n", "6:23 SINEW-5212 cannot read 'missing.md'"),
        (
            "    budget: {cost_usd: 1}\n",
            "6:24 SINEW-5212 cost_usd requires the price of every model; 'main' has none",
        ),
        (
            "    tools: [{peer: A, as: t}, {peer: B, as: t}]\n",
            "6:31 SINEW-5212 two tools are called 't'; name one with `as`",
        ),
        ("    tools: [{peer: A, as: answer}]\n", "6:13 SINEW-5212 two tools are called 'answer'"),
        (
            "    tools: [{peer: A, workflow: b}]\n",
            "6:13 SINEW-5212 expected exactly one of peer, workflow, discover, mcp, script, builtin, request",
        ),
        ("    tools: [{}]\n", "6:13 SINEW-5212 expected exactly one of peer"),
        (
            "    tools: [{discover: {match: [a]}, as: t}]\n",
            "6:42 SINEW-5212 this entry can provide several tools",
        ),
        (
            "    tools: [{discover: {match: [a]}, effect: read}]\n",
            "6:46 SINEW-5212 whether a discovered tool only reads",
        ),
        (
            "    tools: [{discover: {match: [a]}}, {peer: A, as: call_tool}]\n",
            "6:39 SINEW-5212 two tools are called 'call_tool'",
        ),
        ("    tools: [{peer: 'A*', as: t}]\n", "6:30 SINEW-5212 this entry can provide several tools"),
        (
            "    tools: [{peer: A, command: [a]}]\n",
            "6:32 SINEW-5212 `command` belongs to tools of an MCP server",
        ),
        (
            "    tools: [{peer: A, approve: {when: 'args['}}]\n",
            "6:39 SINEW-5212 the condition cannot be used",
        ),
        ("    tools: [{script: {name: t, source: 'def ('}}]\n", "6:40 SINEW-5212 the script cannot be used"),
        (
            "    tools: [{mcp: f, command: [npx, x], allow: [a]}]\n",
            "6:31 SINEW-5212 npx and uvx download programs",
        ),
        ("    tools: [{mcp: f, command: [x]}]\n", "6:13 SINEW-5212 an MCP server needs `allow`"),
        ("    tools: [{mcp: f, command: [x], allow: []}]\n", "6:13 SINEW-5212 an MCP server needs `allow`"),
        ("    tools: [{mcp: f, allow: [a]}]\n", "6:13 SINEW-5212 an MCP server needs either command or url"),
        (
            "    tools: [{mcp: f, command: [x], url: 'http://a', allow: [a]}]\n",
            "6:13 SINEW-5212 an MCP server needs either command or url",
        ),
        (
            "    tools: [{mcp: f, command: [x], env: {K: '{{input.k}}'}, allow: [a]}]\n",
            "6:45 SINEW-5212 settings of a server cannot contain data",
        ),
        ("    tools: [{mcp: 'a b', command: [x], allow: [a]}]\n", "6:19 SINEW-5212 the name of a server"),
        (
            "    tools: [{mcp: f, as: g, command: [x], allow: [a]}]\n",
            "6:26 SINEW-5212 this entry can provide",
        ),
        (
            "    tools: [{mcp: f, command: [x], allow: [a]}, {mcp: f, command: [y], allow: [b]}]\n",
            "6:55 SINEW-5212 two servers are called 'f'",
        ),
        ("    tools: [{request: {mcp: [f]}}]\n", "6:30 SINEW-5212 there is no server 'f' among the tools"),
        (
            "    tools: [{mcp: f, command: [x], allow: [{name: a, approve: {when: 'args['}}]}]\n",
            "6:70 SINEW-5212 the condition cannot be used",
        ),
        ("    skills: [./nowhere]\n", "6:14 SINEW-5212 cannot read "),
        (
            "    compact: {model: other}\n",
            "6:22 SINEW-5212 the model that writes summaries must be one of `use`",
        ),
        ("    session: {keep: 0d}\n", "1:1 SINEW-5010 expected a duration such as"),
        ("    session: {turns: 500}\n", "6:22 "),
    ] {
        let found = complaints(&format!("{HEAD}{more}"));
        if !found.iter().any(|line| line.starts_with(expected)) {
            wrong.push(format!("{more}expected {expected}\nfound {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(complaints(HEAD), Vec::<String>::new());
}

#[test]
fn models_are_checked() {
    for (models, expected) in [
        (
            "{main: {provider: openai}}",
            "SINEW-5212 `model` is required: the name of the model at its provider",
        ),
        (
            "{main: {provider: openai, model: m, key: sk-123}}",
            "SINEW-5212 a key must come from the environment: write ${env:NAME}",
        ),
        (
            "{main: {provider: openai, model: m, key: 'x${env:K}'}}",
            "SINEW-5212 a key must come from the environment",
        ),
        (
            "{main: {provider: openai, model: m, key: '${env:NATS_KEY}'}}",
            "SINEW-5212 environment variable NATS_KEY is reserved",
        ),
        (
            "{main: {provider: openai, model: m, url: 'ftp://a'}}",
            "SINEW-5212 it must begin with http:// or https://",
        ),
        (
            "{main: {provider: openai, model: m, url: 'http://u:p@a'}}",
            "SINEW-5212 it must not contain credentials",
        ),
        (
            "{main: {provider: openai, model: m, url: 'http://a/?k=1'}}",
            "SINEW-5212 it must contain neither '?' nor '#'",
        ),
        (
            "{main: {provider: openai, model: m, headers: {Host: a}}}",
            "SINEW-5212 header 'host' is set by the client",
        ),
        (
            "{main: {provider: openai, model: m, headers: {X: '{{input.a}}'}}}",
            "SINEW-5212 headers of a model cannot contain data",
        ),
        ("{main: {provider: script, answers: [{say: x}]}}", "SINEW-5212 'say' is not one of call, answer"),
        (
            "{main: {provider: openai, model: m, answers: []}}",
            "SINEW-5212 only a model with `provider: script` has answers",
        ),
        ("{mian: {provider: script}}", "SINEW-5212 there is no model 'main'; did you mean 'mian'?"),
        ("{main: {provider: oracle}}", "5:31 "),
    ] {
        let found = complaints(&format!("name: x\nrun:\n  model:\n    use: [main]\n    models: {models}\n"));
        assert!(found.iter().any(|line| line.contains(expected)), "{models}: {found:?}");
    }
    let found = complaints("name: x\nrun: {model: {use: [main]}}\n");
    assert!(found[0].contains("models.yaml next to this file cannot be read"), "{found:?}");
}

#[test]
fn words_of_others_beside_tools_that_act_are_doubtful() {
    let script = "{name: total, source: 'lambda args: 1'}";
    for (taint, tools, is_doubtful) in [
        ("allow", "[{peer: Inbox}, {peer: Payment, effect: once}]".to_owned(), true),
        ("allow", "[{mcp: mail, command: [mail], allow: ['*']}]".to_owned(), true),
        ("allow", "[{mcp: mail, command: [mail], allow: ['*'], trust_hints: true}]".to_owned(), false),
        ("allow", "[{peer: Inbox}, {peer: Payment, effect: once, approve: true}]".to_owned(), false),
        ("allow", "[{peer: Inbox, trust: own}, {peer: Payment, effect: once, trust: own}]".to_owned(), false),
        ("allow", format!("[{{peer: Inbox}}, {{script: {script}}}]"), false),
        ("approve", "[{peer: Inbox}, {peer: Payment, effect: once}]".to_owned(), false),
    ] {
        let file = format!(
            "name: x\nrun:\n  model:\n    use: [main]\n    models: {{main: {{provider: script}}}}\n    taint: {taint}\n    tools: {tools}\n"
        );
        let agent = Agent::from_text(std::path::Path::new("x.agent.yaml"), &file).unwrap();
        let told: Vec<_> =
            agent.warnings().items.iter().map(|one| (one.code, one.span.map(|at| at.line))).collect();
        let want = if is_doubtful { vec![("SINEW-5214", Some(6))] } else { Vec::new() };
        assert_eq!(told, want, "{taint} {tools}");
    }
}

#[test]
fn models_may_stand_in_a_file_beside_the_agents() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.agent.yaml");
    std::fs::write(&path, "name: x\nrun: {model: {use: [main]}}\n").unwrap();
    for (models, fits) in
        [("main: {provider: script}\n", true), ("main: {provider: script, speed: 1}\n", false)]
    {
        std::fs::write(folder.path().join("models.yaml"), models).unwrap();
        let loaded = Agent::load_with(&path, &environment());
        assert_eq!(loaded.is_ok(), fits, "{models}");
    }
}

#[tokio::test]
async fn models_beside_the_file_join_those_of_it_and_one_may_be_chosen() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.agent.yaml");
    let file = |models: &str| {
        let text = format!("name: x\nrun:\n  model:\n    use: [main]\n    models: {{main: {models}}}\n");
        std::fs::write(&path, text).unwrap();
        Agent::load_with(&path, &environment())
    };
    let script = |words: &str| format!("{{provider: script, answers: [{{text: {words}}}]}}");
    let shared = format!("main: {}\nother: {}\n", script("shared"), script("other"));
    std::fs::write(folder.path().join("models.yaml"), shared).unwrap();
    for (chosen, known, answer) in [
        (None, true, "own"),
        (Some("other"), true, "other"),
        (Some("main"), true, "own"),
        (Some("none"), false, "own"),
    ] {
        let agent = file(&script("own")).unwrap();
        let aliases: Vec<String> = agent.models().into_iter().map(|model| model.alias).collect();
        assert_eq!(aliases, ["main", "other"]);
        assert_eq!(chosen.is_none_or(|alias| agent.choose_model(alias)), known, "{chosen:?}");
        let artifacts =
            std::sync::Arc::new(sinew_agents::ArtifactFolder::open(folder.path().join("a")).unwrap());
        let mut call = sinew_agents::Call::new("x", serde_json::json!({"text": "hi"}), artifacts);
        // An alias that a node names does not count beside a choice.
        call.context = serde_json::json!({"request": {"model": "main"}});
        assert_eq!(agent.call(call).await.unwrap().output["text"], answer, "{chosen:?}");
    }
    // The chosen model alone: another does not answer in its place.
    let broken =
        format!("other: {}\n", "{provider: script, answers: [{error: {status: 503}}], retry: {limit: 0}}");
    std::fs::write(folder.path().join("models.yaml"), broken).unwrap();
    let agent = file(&script("own")).unwrap();
    assert!(agent.choose_model("other"));
    let artifacts = std::sync::Arc::new(sinew_agents::ArtifactFolder::open(folder.path().join("a")).unwrap());
    let call = sinew_agents::Call::new("x", serde_json::json!({"text": "hi"}), artifacts);
    let fault = agent.call(call).await.unwrap_err();
    assert_eq!(fault.code, "SINEW-5201", "{fault:?}");
    std::fs::write(folder.path().join("models.yaml"), "main: [").unwrap();
    let found = file(&script("own")).map(drop).unwrap_err().to_string();
    assert!(found.contains("models.yaml"), "{found}");
}

#[tokio::test]
async fn skills_stand_in_the_instruction_or_are_read() {
    let folder = TempDir::new().unwrap();
    for (name, body) in [("small", "Be short.".to_owned()), ("large", "x".repeat(5000))] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        let text = format!("---\nname: {name}\ndescription: How to be {name}.\n---\n{body}\n");
        std::fs::write(folder.path().join(name).join("SKILL.md"), text).unwrap();
    }
    let path = folder.path().join("x.agent.yaml");
    let file = "name: x\nrun:\n  model:\n    use: [main]\n    skills: [./small, ./large]\n    models:\n      main:\n        provider: script\n        \
                answers: [{call: {skill_read: {name: large}}}, {text: done}]\n";
    std::fs::write(&path, file).unwrap();
    let agent = Agent::load_with(&path, &environment()).unwrap();
    let artifacts = std::sync::Arc::new(sinew_agents::ArtifactFolder::open(folder.path().join("a")).unwrap());
    let call = sinew_agents::Call::new("x", serde_json::json!({"text": "hi"}), artifacts);
    let reply = agent.call(call).await.unwrap();
    assert_eq!(reply.output, serde_json::json!({"text": "done"}));
    let read = reply.events[1]["output"].as_str().unwrap();
    assert!(read.starts_with("xxxx") && read.contains("bytes left out"), "{read}");
}
