//! Short runs: kills of everything there is, and a verdict that lists nothing.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::process::Command;

use serde_json::Value;

/// Runs the program and gives its report.
fn report(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_sinew-chaos")).args(args).arg("--json").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).unwrap()
}

#[test]
fn nothing_is_lost_or_doubled_when_everything_is_killed() {
    let report = report(&[
        "run",
        "--short",
        "--seconds",
        "12",
        "--executions",
        "30",
        "--executor-kills",
        "4",
        "--agent-kills",
        "1",
        "--broker-kills",
        "1",
        "--halts",
        "1",
        "--executors",
        "2",
        "--shards",
        "4",
        "--seed",
        "1",
    ]);
    assert_eq!(report["verdict"]["terminal"], 30);
    let faults = &report["faults"];
    assert_eq!(faults["executor_kills"], 4, "a run without faults proves nothing");
    assert_eq!((&faults["agent_kills"], &faults["broker_kills"]), (&1.into(), &1.into()));
}

#[test]
fn nothing_is_lost_or_doubled_in_a_cluster_whose_servers_are_killed() {
    let report = report(&[
        "run",
        "--short",
        "--servers",
        "3",
        "--seconds",
        "12",
        "--executions",
        "24",
        "--executor-kills",
        "1",
        "--agent-kills",
        "1",
        "--broker-kills",
        "2",
        "--halts",
        "0",
        "--leader-halts",
        "1",
        "--emptied-disks",
        "1",
        "--executors",
        "2",
        "--shards",
        "4",
        "--seed",
        "3",
    ]);
    assert_eq!(report["verdict"]["terminal"], 24);
    let faults = &report["faults"];
    assert_eq!((&faults["broker_kills"], &faults["emptied_disks"]), (&2.into(), &1.into()));
    assert_eq!(faults["leader_halts"], 1, "a run without faults proves nothing");
}

#[test]
fn attackers_of_every_role_stop_nothing_in_a_cluster_whose_servers_are_killed() {
    let report = report(&[
        "attacks",
        "--short",
        "--servers",
        "3",
        "--seconds",
        "6",
        "--executions",
        "8",
        "--executor-kills",
        "1",
        "--agent-kills",
        "0",
        "--broker-kills",
        "1",
        "--halts",
        "0",
        "--executors",
        "2",
        "--shards",
        "4",
        "--seed",
        "5",
    ]);
    assert_eq!(report["verdict"]["terminal"], 8);
    let attacks = &report["attacks"];
    for attacker in ["vandal", "rogue", "stranger", "thief", "neighbour"] {
        assert!(attacks["messages"][attacker].as_u64().unwrap() >= 90, "{attacker}: {report:#}");
    }
    assert_eq!(attacks["refused"], attacks["messages"]["neighbour"], "{report:#}");
}

#[test]
fn nothing_acknowledged_is_lost_when_power_is_cut() {
    if !has_fuse() {
        println!("NOT TRIED: faults of disks need /dev/fuse, which is not here");
        return;
    }
    let report = report(&[
        "run",
        "--short",
        "--power-cuts",
        "8",
        "--seconds",
        "12",
        "--executions",
        "24",
        "--executor-kills",
        "1",
        "--agent-kills",
        "1",
        "--broker-kills",
        "0",
        "--halts",
        "0",
        "--executors",
        "2",
        "--shards",
        "4",
        "--seed",
        "4",
    ]);
    assert_eq!(report["verdict"]["terminal"], 24);
    let faults = &report["faults"];
    assert_eq!(faults["power_cuts"], 8);
    assert!(faults["forgotten_changes"].as_u64().unwrap() > 0, "a disk that forgets nothing proves nothing");
}

/// Whether this system can show a disk of a process.
fn has_fuse() -> bool {
    std::fs::OpenOptions::new().write(true).open("/dev/fuse").is_ok()
}

#[test]
fn nothing_is_lost_when_a_disk_is_full_or_can_only_be_read() {
    if !has_fuse() {
        println!("NOT TRIED: faults of disks need /dev/fuse, which is not here");
        return;
    }
    let report = report(&[
        "run",
        "--short",
        "--full-disks",
        "1",
        "--read-only-disks",
        "1",
        "--seconds",
        "10",
        "--executions",
        "20",
        "--executor-kills",
        "0",
        "--agent-kills",
        "0",
        "--broker-kills",
        "0",
        "--halts",
        "0",
        "--executors",
        "2",
        "--shards",
        "4",
        "--seed",
        "7",
    ]);
    assert_eq!(report["verdict"]["terminal"], 20);
    let faults = &report["faults"];
    assert_eq!((&faults["full_disks"], &faults["read_only_disks"]), (&1.into(), &1.into()));
    assert!(faults["refused_changes"].as_u64().unwrap() > 0, "a disk that refuses nothing proves nothing");
}

#[test]
fn killed_in_the_middle_of_a_turn_conversations_go_on_at_the_recorded_one() {
    let report = report(&[
        "conversations",
        "--conversations",
        "24",
        "--kills",
        "8",
        "--halts",
        "0",
        "--seed",
        "1",
        "--patience",
        "240",
    ]);
    let verdict = &report["verdict"];
    assert_eq!((&report["kills"], &verdict["ended_right"]), (&8.into(), &24.into()));
    assert_eq!((&verdict["recorded_turns_asked_again"], &verdict["acted_twice"]), (&0.into(), &0.into()));
    assert!(verdict["taken_up"].as_u64().unwrap() >= 8, "a run without takeovers proves nothing: {report:#}");
}

#[test]
fn streams_and_webhooks_outlive_everything_between_them() {
    let report = report(&[
        "gateway",
        "--streams",
        "24",
        "--pushes",
        "8",
        "--seconds",
        "12",
        "--gateway-kills",
        "2",
        "--bridge-kills",
        "2",
        "--executor-kills",
        "1",
        "--broker-kills",
        "1",
        "--work-ms",
        "4000",
        "--seed",
        "1",
    ]);
    assert_eq!((&report["streams"], &report["pushed_whole"]), (&24.into(), &8.into()), "{report:#}");
    assert_eq!((&report["gaps"], &report["repeats"]), (&0.into(), &0.into()), "{report:#}");
    assert_eq!(report["messages_sent_twice"], 0, "{report:#}");
    assert!(
        report["resumed"].as_u64().unwrap() >= 8,
        "a run without broken streams proves nothing: {report:#}"
    );
}

#[test]
fn steady_work_leaves_no_task_and_nothing_open() {
    let report = report(&[
        "soak",
        "--short",
        "--seconds",
        "10",
        "--deploy-seconds",
        "3",
        "--agent-kill-seconds",
        "4",
        "--seed",
        "1",
    ]);
    assert_eq!(report["started"], report["ended"], "{report:#}");
    assert_eq!((&report["deployed"], &report["agent_kills"]), (&3.into(), &2.into()), "{report:#}");
    assert!(report["memory"]["executor 1"]["last"].as_f64().unwrap() > 0.0, "{report:#}");
}

#[cfg(feature = "crash-points")]
#[test]
fn every_place_of_a_conversation_can_be_died_at() {
    let report =
        report(&["conversation-points", "--kills", "1", "--open", "24", "--seed", "1", "--patience", "240"]);
    assert_eq!(report["deaths"].as_object().unwrap().len(), 22, "{report:#}");
}

#[cfg(feature = "crash-points")]
#[test]
fn every_place_of_a_gateway_and_of_a_bridge_can_be_died_at() {
    let report = report(&["gateway-points", "--kills", "1", "--seed", "1", "--patience", "240"]);
    assert_eq!(report["deaths"].as_object().unwrap().len(), 21, "{report:#}");
}

#[cfg(feature = "crash-points")]
#[test]
fn every_place_can_be_died_at() {
    // Crash points that need a large load are left to the long form.
    let without = "card,quarantine,piece,object,executor,open,event,rpc,reply";
    let report = report(&[
        "points",
        "--kills",
        "1",
        "--open",
        "30",
        "--executors",
        "3",
        "--agents",
        "3",
        "--shards",
        "4",
        "--seed",
        "1",
        "--without",
        without,
    ]);
    assert!(report["deaths"].as_object().unwrap().len() >= 25, "{}", report["deaths"]);
}

#[cfg(not(feature = "crash-points"))]
#[test]
fn without_the_feature_there_is_no_place_to_die_at() {
    for command in ["points", "conversation-points", "gateway-points"] {
        let output = Command::new(env!("CARGO_BIN_EXE_sinew-chaos")).arg(command).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("--features crash-points"), "{said}");
    }
}

/// Two bombs of each kind: everybody innocent ends rightly, no process grows or ends, and no bomb is left at work.
#[test]
fn bombs_of_all_dialects_harm_nobody() {
    let report = report(&[
        "bombs",
        "--short",
        "--bombs",
        "30",
        "--seconds",
        "6",
        "--quiet-seconds",
        "1",
        "--rate",
        "3",
        "--seed",
        "1",
    ]);
    let ends = report["ends"].as_object().unwrap();
    assert_eq!(ends.len(), 15, "{report:#}");
    for (place, ends) in ends {
        let count: u64 = ends.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(count, 2, "{place}: {report:#}");
    }
}
