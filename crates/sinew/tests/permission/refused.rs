//! Refused operations end at once, with exit code 7, the subject, and the roles that have the right.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::permission::world::{NORTH, World, accounts};

const FLOW: &str = "workflow:\n  description: One.\n  version: '1.0'\n  nodes:\n    - {id: a, type: agent, agent_name: Nobody}\n  \
                    output_mapping: {a: \"{{a.output}}\"}\n";
const PRICING: &str = "name: Pricing\nrun: {script: {source: \"lambda input: 1\"}}\n";
const BOOKING: &str = "name: Booking\nrun: {script: {source: \"lambda input: 1\"}}\n";

/// A wait for an answer that does not come takes longer than this.
const AT_ONCE: Duration = Duration::from_millis(4_500);

/// User, command, part of the subject, part of the message about the roles.
const CASES: &[(&str, &[&str], &str, &str)] = &[
    (
        "client",
        &["workflow", "deploy", "other.yaml"],
        "$O.north_PLANS.",
        "requires the role executor or admin",
    ),
    (
        "client",
        &["run", "other.yaml", "--mesh", "-q"],
        "$O.north_PLANS.",
        "requires the role executor or admin",
    ),
    (
        "client",
        &["mesh", "provision"],
        "$JS.API.STREAM.INFO.KV_north_FLEET",
        "operator or admin or provisioner",
    ),
    ("client", &["mesh", "check"], "$JS.API.STREAM.INFO.KV_north_FLEET", "executor or gateway or operator"),
    (
        "client",
        &["mesh", "quarantine", "list"],
        "$JS.API.CONSUMER.CREATE.north_QUARANTINE.",
        "executor or gateway or operator",
    ),
    ("client", &["top", "--once"], "$KV.north_FLEET.shard.>", "executor or gateway or operator or admin"),
    ("client", &["agent", "list", "--mesh", "--as", "ada"], "_INBOX_ada.", "requires the name ada"),
    (
        "operator",
        &["artifact", "put", "flow.yaml"],
        "north.v1.artifact.",
        "agent or executor or client or gateway or admin",
    ),
    ("operator", &["agent", "call", "Pricing", "--mesh"], ".rpc.Pricing.SendMessage.n-operator", "client"),
    (
        "operator",
        &["execution", "cancel", "one", "--yes"],
        "north.v1.command.",
        "executor or client or gateway or admin",
    ),
    (
        "operator",
        &["mesh", "provision", "--retention", "3d"],
        "STREAM.MSG.GET.KV_north_FLEET",
        "executor or provisioner",
    ),
    ("agent", &["agent", "list", "--mesh"], "north_CARDS", "executor or client"),
    ("agent", &["execution", "list"], "north_WORKFLOWS", "executor or client"),
    ("agent", &["serve", "executor"], "$JS.API.STREAM.INFO.KV_north_FLEET", "executor"),
    (
        "agent",
        &["serve", "agent", "booking.agent.yaml"],
        "north.v1.rpc.Booking.>",
        "requires the role agent as Booking or executor",
    ),
    ("provisioner", &["execution", "list"], "north_WORKFLOWS", "executor or client"),
    ("executor", &["workflow", "deploy", "other.yaml"], "north.v1.workflow.other", "admin"),
];

#[test]
fn what_is_not_permitted_says_so_at_once() {
    let world = World::with(&accounts(&["Pricing"]), "");
    world.ok(&NORTH, "provisioner", &["mesh", "provision", "--shards", "2"]);
    world.write("flow.yaml", FLOW);
    world.write("other.yaml", &FLOW.replace("id: a", "id: b").replace("a.output", "b.output"));
    world.write("booking.agent.yaml", BOOKING);
    world.ok(&NORTH, "admin", &["workflow", "deploy", "flow.yaml"]);
    world.write("pricing.agent.yaml", PRICING);
    let _agent = world.serve(&NORTH, "Pricing", &["serve", "agent", "pricing.agent.yaml"]);
    world.until_online("Pricing");
    // One that is open, with nobody who works on it: its journal is read by whoever asks.
    let _executor = world.serve(&NORTH, "executor", &["serve", "executor"]);
    world.ends(&NORTH, "client", &["run", "flow", "--mesh", "--id", "one", "--timeout", "1s", "-q"], 5);
    for (role, args, subject, who) in CASES {
        let began = Instant::now();
        let (_, said) = world.ends(&NORTH, role, args, 7);
        let took = began.elapsed();
        for part in ["SINEW-7024", "is not permitted to", subject, who, "hint: "] {
            assert!(said.contains(part), "{role} {args:?} says nothing of {part}:\n{said}");
        }
        assert!(took < AT_ONCE, "{role} {args:?} took {took:?}");
    }
    // As data too.
    let (out, said) = world.ends(&NORTH, "client", &["top", "--once", "-o", "json"], 7);
    let error: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert!(out.is_empty() && error["error"]["code"] == "SINEW-7024", "{error}");
}
