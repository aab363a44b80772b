//! `sinew bench` with a few of everything: that it measures, and that nothing of it is left when it is killed.
#![expect(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use crate::common;

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::Said;
use serde_json::Value;
use tempfile::TempDir;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(3);

/// The bench, and what it and whatever it starts may write to: its stdout ends when all of them have ended.
fn bench(folder: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let held = "exec 9>&1; exec \"$0\" bench --shards 4 \"$@\"";
    command.args(["-c", held, env!("CARGO_BIN_EXE_sinew")]).args(args).stdin(Stdio::null());
    // A killed process leaves its folders behind.
    command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// All that is said on stdout, once nobody is left who could say more.
fn rest(mut stdout: impl std::io::Read + Send + 'static) -> String {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = String::new();
        done.send(stdout.read_to_string(&mut all).map(|_| all))
    });
    let Ok(all) = ended.recv_timeout(PATIENCE) else {
        panic!("the bench or a process of it has not ended within {PATIENCE:?}")
    };
    all.expect("it writes UTF-8")
}

#[test]
fn a_bench_of_a_few_executions_gives_all_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = bench(&folder, &["--only", "jobs", "--smoke", "-o", "json"])
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it starts");
    let said = rest(child.stdout.take().expect("a pipe"));
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}: {said}");
    let report: Value = serde_json::from_str(&said).expect("one document");
    let figures = report["figures"].as_array().expect("figures");
    // Six systems, three jobs, with and without synced writes.
    assert_eq!(figures.len(), 36, "{report:#}");
    for figure in figures {
        assert!(figure["p50_us"].as_f64() > Some(0.0), "{figure:#}");
    }
    assert!(report["executor_mib"].as_f64() > Some(0.0), "{report:#}");
}

#[test]
fn a_bench_of_a_few_conversations_gives_all_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = bench(&folder, &["--only", "conversations", "--smoke", "-o", "json"]);
    let mut child = child.stderr(Stdio::inherit()).spawn().expect("it starts");
    let said = rest(child.stdout.take().expect("a pipe"));
    assert!(child.wait().expect("it ends").success(), "{said}");
    let report: Value = serde_json::from_str(&said).expect("one document");
    let talks = &report["conversations"];
    assert_eq!((&talks["nodes"], &talks["parked"]), (&4.into(), &4.into()), "{report:#}");
    // A begin, fifty asks and turns, 49 results, an end.
    assert_eq!(talks["replayed_records"], 151, "{report:#}");
    for figure in ["agent_cpu_ms", "all_cpu_ms", "p50_ms", "replay_ms"] {
        assert!(talks[figure].as_f64() > Some(0.0), "{figure}: {report:#}");
    }
    assert!(talks["delta_ms"][0].as_f64() > Some(0.0), "{report:#}");
}

#[test]
#[cfg(debug_assertions)]
fn a_debug_build_is_not_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = bench(&folder, &[]).output().expect("it starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("cargo build --release"), "{text}");
}

#[test]
fn nothing_of_a_killed_bench_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = bench(&folder, &["--only", "jobs", "--smoke"]).spawn().expect("it starts");
    let told = Said::by(child.stderr.take().expect("a pipe"));
    told.wait_for("round 1 of 1");
    common::kill(child.id());
    assert!(!child.wait().expect("it ends").success());
    rest(child.stdout.take().expect("a pipe"));
}
