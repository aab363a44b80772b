//! The first hour with a mesh: `sinew dev`, the command that it names, what is said when something is missing, and why
//! something failed.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sinew_mesh::server::{Server, ServerOptions};

use crate::common::{BOOKING, BROKEN, FLOW, PRICING, Role, Said, World, text};

#[test]
fn a_start_that_no_executor_takes_is_told_listed_and_begun_later() {
    let (world, executor) = World::new();
    world.write("orders.yaml", FLOW);
    world.write("cards/pricing.agent.yaml", PRICING);
    world.write("cards/booking.agent.yaml", BOOKING);
    drop(executor);
    let run =
        world.run(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--id", "early", "--timeout", "4s"]);
    let told = text(&run.stderr);
    assert_eq!(run.status.code(), Some(5), "{told}");
    assert!(told.contains("none serves its shard") && told.contains("the start is stored"), "{told}");
    let rows = world.json(&["execution", "list"]);
    assert_eq!((&rows[0]["execution"], &rows[0]["status"]), (&json!("early"), &json!("waiting")), "{rows}");
    assert!(rows[0]["waiting"].as_str().unwrap().starts_with("an executor"), "{rows}");
    let described = world.run(&["execution", "describe", "early", "-o", "json"]);
    assert_eq!(described.status.code(), Some(6));
    assert!(text(&described.stderr).contains("SINEW-8050"));
    let _executor = world.serve(&["serve", "executor"]);
    let _agents = world.serve(&["serve", "agent", "cards"]);
    let begun = Instant::now();
    while !world.run(&["execution", "describe", "early"]).status.success() {
        assert!(begun.elapsed() < Duration::from_mins(1), "it has not begun");
    }
    world.ok(&["execution", "watch", "early", "-q"]);
    assert_eq!(world.json(&["execution", "result", "early"]), json!({"booked": 2}));
}

#[test]
fn an_executor_that_was_killed_counts_as_silent() {
    let (world, executor) = World::new();
    world.write("orders.yaml", FLOW);
    world.write("cards/pricing.agent.yaml", PRICING);
    world.write("cards/booking.agent.yaml", BOOKING);
    let _agents = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--id", "done", "-q"]);
    let executors = || {
        let checks: Value =
            serde_json::from_str(&text(&world.run(&["doctor", "-o", "json"]).stdout)).unwrap();
        let check = checks.as_array().unwrap().iter().find(|check| check["check"] == "executors").cloned();
        check.unwrap_or_else(|| panic!("{checks:#}"))
    };
    assert_eq!((&executors()["state"], &executors()["message"]), (&json!("ok"), &json!("1 executor")));
    drop(executor);
    let killed = Instant::now();
    let check = loop {
        let check = executors();
        if check["state"] == "fail" {
            break check;
        }
        assert!(killed.elapsed() < Duration::from_mins(1), "{check}");
    };
    assert!(check["message"].as_str().unwrap().contains("1 unreachable, last heartbeat"), "{check}");
    assert!(check["hint"].as_str().unwrap().starts_with("sinew serve executor"), "{check}");
    let top = world.json(&["top", "--once"]);
    assert_eq!((&top["owned"], &top["shards"]), (&json!(0), &json!(4)), "{top}");
    assert!(top["executors"][0]["silent_ms"].as_u64().unwrap() > 4_000, "{top}");
    let top = world.ok(&["top", "--once"]);
    assert!(
        top.contains("executors 0 (1 unreachable, last heartbeat ") && top.contains("shards 0/4"),
        "{top}"
    );
    assert!(top.contains("executions held 0  messages quarantined 0"), "{top}");
    // The newest execution is one that no executor has taken, not the one before it.
    world.ok(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--id", "later", "--detach"]);
    let described = world.run(&["execution", "describe", "@latest"]);
    assert_eq!(described.status.code(), Some(6));
    let told = text(&described.stderr);
    assert!(told.contains("execution later is stored, but no executor has started it"), "{told}");
}

#[test]
fn lists_say_why() {
    let (world, _executor) = World::new();
    world.write("orders.yaml", FLOW);
    world.write("cards/pricing.agent.yaml", PRICING);
    world.write("cards/booking.agent.yaml", BROKEN);
    let agents = world.serve(&["serve", "agent", "cards"]);
    world.online(&["Pricing", "Booking"]);
    world.ends(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--id", "broken", "-q"], 1);
    let rows = world.json(&["execution", "list", "--status", "failed"]);
    assert!(rows[0]["error"]["message"].as_str().unwrap().contains("ZeroDivisionError"), "{rows}");
    assert_eq!(rows[0]["error"]["node"], "book");
    let table = world.ok(&["execution", "list"]);
    assert!(table.contains("Node 'book' failed") && table.contains("WHY"), "{table}");
    let node = world.json(&["execution", "describe", "broken", "--node", "book"]);
    assert_eq!((&node["input"], &node["status"]), (&json!({"price": 2}), &json!("failed")), "{node}");
    // An agent that dies is told of by what waits for it.
    drop(agents);
    world.ok(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--id", "lonely", "--detach"]);
    let began = Instant::now();
    loop {
        let rows = world.json(&["execution", "list", "--status", "running"]);
        let waiting = rows[0]["waiting"].as_str().unwrap_or_default();
        if waiting.contains("no heartbeat for") || waiting.contains("offline") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{rows}");
    }
}

#[test]
fn dev_keeps_what_it_has_and_says_what_to_type() {
    let (world, port) = World::for_dev();
    world.write("workflows/orders.yaml", FLOW);
    world.write("agent-cards/pricing.agent.yaml", PRICING);
    let start = |world: &World| {
        let mut child = world
            .command(&["dev", "--port", &port])
            .env_remove("NATS_URL")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let banner = Said::by(child.stdout.take().unwrap()).wait_for("  Next ");
        (Role(child), banner)
    };
    let (dev, banner) = start(&world);
    for wanted in [
        ".sinew/store (--ephemeral stores nothing)",
        "1: Pricing",
        "11: echo",
        "1: orders",
        "sinew run orders",
        &port,
    ] {
        assert!(banner.contains(wanted), "no {wanted:?} in\n{banner}");
    }
    // The next command can be typed as it stands there: its input is taken.
    let next = banner.lines().find_map(|line| line.trim().strip_prefix("Next         sinew ")).unwrap();
    assert!(next.contains(r#" -i '{"amount":1}' "#), "{next}");
    let typed: Vec<String> = next.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect();
    let typed: Vec<&str> = typed.iter().map(String::as_str).chain(["--timeout", "3s"]).collect();
    world.ends(&typed, 5);
    // An input that the workflow does not take is refused before anything is stored.
    let before = world.json(&["execution", "list"]).as_array().unwrap().len();
    world.ends(&["run", "orders", "--mesh", "-p", "amount=many"], 2);
    assert_eq!(world.json(&["execution", "list"]).as_array().unwrap().len(), before);
    // In its folder the mesh of `sinew dev` is meant without a flag.
    let mut here = world.command(&["agent", "list", "-o", "name"]);
    assert_eq!(
        text(&here.env_remove("NATS_URL").output().unwrap().stdout),
        "Pricing\necho\nfailing\ngreeter\nhttp\njudge\nrecord-tools\nresearcher\nrouter\nsummariser\n\
         text-tools\nwriter\n"
    );
    world.ends(&["run", "orders", "--mesh", "-p", "amount=1", "--id", "kept", "--timeout", "3s"], 5);
    // All commands log in as the server's one user, so the caller is the system's user.
    let caller = world.json(&["execution", "describe", "kept"])["caller"].clone();
    assert!(caller.as_str().is_some_and(|caller| caller.starts_with("ada")), "{caller}");
    assert_eq!(dev.stop(), Some(0));
    // Started again, with the agent that was missing, it goes on.
    world.write("agent-cards/booking.agent.yaml", BOOKING);
    let (dev, _) = start(&world);
    world.ok(&["execution", "watch", "kept", "-q"]);
    assert_eq!(world.json(&["execution", "result", "kept"]), json!({"booked": 2}));
    assert_eq!(dev.stop(), Some(0));
}

/// In a deployment, provisioning and the server start at the same time.
#[test]
fn provisioning_waits_for_a_server_that_starts_later() {
    let (world, port) = World::for_dev();
    let early = TcpListener::bind(("127.0.0.1", port.parse::<u16>().unwrap())).unwrap();
    let mut command = world.command(&["mesh", "provision"]);
    let mut provision = command.env("NATS_TIMEOUT", "60s").stdout(Stdio::null()).spawn().unwrap();
    // The first attempt fails.
    drop(early.accept().unwrap());
    drop(early);
    let options = ServerOptions { port: port.parse().ok(), ..ServerOptions::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _server = runtime.block_on(Server::start(options)).unwrap();
    assert!(provision.wait().unwrap().success());
}

/// Another user of the machine has the address, and no file of this one.
#[test]
fn server_of_dev_asks_for_its_password() {
    let (world, port) = World::for_dev();
    let start = || {
        let mut child = world
            .command(&["dev", "--port", &port, "--gateway-port", "0"])
            .env_remove("NATS_URL")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let banner = Said::by(child.stdout.take().unwrap()).wait_for("  Next ");
        assert!(banner.contains(".sinew/dev.env"), "{banner}");
        Role(child)
    };
    let dev = start();
    let elsewhere = World::at(world.url.clone());
    elsewhere.ends(&["agent", "list", "--mesh"], 7);
    let variables = std::fs::read_to_string(world.path().join(".sinew/dev.env")).unwrap();
    let with_variables = |args: &[&str]| {
        let mut command = elsewhere.command(args);
        command.envs(variables.lines().filter_map(|line| line.split_once('=')));
        command.output().unwrap().status.code()
    };
    assert_eq!(with_variables(&["agent", "list", "--mesh"]), Some(0));
    let folder = world.path().to_str().unwrap();
    let mut named = elsewhere.command(&["agent", "list", "--dev", folder, "-o", "name"]);
    let listed = named.env_remove("NATS_URL").output().unwrap();
    assert!(text(&listed.stdout).contains("echo"), "{}", text(&listed.stderr));
    // A host's configuration leads to the folder and holds no password.
    let mut config = elsewhere.command(&["mcp", "config", "zed", "--dev", folder]);
    let config = config.env_remove("NATS_URL").output().unwrap();
    let config = text(&config.stdout);
    assert!(config.contains("--dev") && config.contains(folder), "{config}");
    let password = variables.lines().find_map(|line| line.strip_prefix("NATS_PASSWORD=")).unwrap();
    assert!(!config.contains(password), "{config}");
    #[cfg(unix)]
    for file in
        [".sinew/dev.json", ".sinew/dev.env", ".sinew/store/password", ".sinew/store/nats-server.conf"]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(world.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
    assert_eq!(dev.stop(), Some(0));
    assert!(!world.path().join(".sinew/dev.env").exists());
    elsewhere.ends(&["agent", "list", "--dev", folder], 4);
    // The password is the same after the next start: agents in other languages reconnect.
    let dev = start();
    assert_eq!(with_variables(&["agent", "list", "--mesh"]), Some(0));
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn dev_deploys_what_is_saved() {
    let (world, port) = World::for_dev();
    world.write("workflows/orders.yaml", FLOW);
    let mut child = world
        .command(&["dev", "--ephemeral", "--port", &port, "--reload", "--vocabulary", "spec"])
        .env_remove("NATS_URL")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let told = Said::by(child.stderr.take().unwrap());
    let banner = Said::by(child.stdout.take().unwrap()).wait_for("  Next ");
    assert!(banner.contains("none (--ephemeral)"), "{banner}");
    let dev = Role(child);
    world.online(&["orders"]);
    let card = world.json(&["agent", "card", "orders", "--mesh"]).to_string();
    assert!(card.contains("\"vocabulary\":\"spec\""), "{card}");
    let version = || world.json(&["workflow", "list", "--mesh"])[0]["digest"].clone();
    let first = version();
    world.write("workflows/orders.yaml", &FLOW.replace("books it", "does"));
    told.wait_for("deployed orders@");
    let second = version();
    assert_ne!(first, second);
    // A broken file is reported, and the deployed version stays.
    world.write("workflows/orders.yaml", "workflow: [");
    told.wait_for("nothing was deployed");
    assert_eq!(version(), second);
    world.write("workflows/more.yaml", FLOW);
    world.write("workflows/orders.yaml", FLOW);
    told.wait_for("deployed more@");
    assert_eq!(world.ok(&["workflow", "list", "--mesh", "-o", "name"]), "more\norders");
    // Agents are served anew, in a folder that was not there before.
    world.write("agent-cards/pricing.agent.yaml", PRICING);
    told.wait_for("serving agents: Pricing, echo");
    world.online(&["Pricing"]);
    // While agents change places, a call may find none.
    let price = || {
        let called = world.run(&["agent", "call", "Pricing", "--mesh", "-p", "amount=2", "-o", "json"]);
        serde_json::from_slice::<Value>(&called.stdout)
            .map(|answer| answer["output"].clone())
            .unwrap_or_default()
    };
    assert_eq!(price(), json!({"price": 4}));
    world.write("agent-cards/pricing.agent.yaml", &PRICING.replace("* 2", "* 30"));
    told.wait_for("serving agents: Pricing, echo");
    let began = Instant::now();
    while price() != json!({"price": 60}) {
        assert!(began.elapsed() < Duration::from_secs(30), "the agent from before still answers");
    }
    assert_eq!(dev.stop(), Some(0));
}

/// Text that scripts print and programs write to stderr stays with the record of an execution in this folder.
#[test]
fn messages_of_local_executions_are_read_after_the_end() {
    let world = World::at(String::new());
    let prints =
        "name: Prints\nrun: {script: {source: \"def f(d):\\n  print('given', d['n'])\\n  return d\"}}\n";
    let fails = "name: Fails\nrun: {command: {argv: [sh, -c, 'echo reading >&2; exit 3']}}\n";
    world.write("agent-cards/prints.agent.yaml", prints);
    world.write("agent-cards/fails.agent.yaml", fails);
    let flow = "name: w\nworkflow:\n  description: d\n  nodes:\n    \
                - {id: a, type: agent, agent_name: Prints, input: {n: 7}}\n    \
                - {id: b, type: agent, agent_name: Fails, depends_on: [a], input: {}}\n  output_mapping: {}\n";
    world.write("w.yaml", flow);
    world.ends(&["run", "w.yaml", "--local", "-q", "--trust"], 1);
    let logs = world.ok(&["execution", "logs", "@latest", "--local"]);
    let lines: Vec<&str> = logs.lines().collect();
    assert_eq!(lines[..2], ["a  given 7", "b  reading"], "{logs}");
    let node = world.ok(&["execution", "describe", "@latest", "--local", "--node", "b"]);
    assert!(
        node.lines().any(|line| line.starts_with("log ") && line.ends_with("attempt 1: reading")),
        "{node}"
    );
}
