//! systemd units, read by systemd.

use std::fs;
use std::process::Command;

use super::{all, has, read, said};

/// Of 100, as `systemd-analyze security` counts what a unit could do.
const MOST_EXPOSED: &str = "20";

#[test]
fn systemd_takes_every_unit_and_finds_it_locked_down() {
    if !has("systemd-analyze", "install systemd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for unit in all("systemd", "service") {
        // It looks for the program; this is one that is there.
        let text = read(&unit)
            .replace("/usr/local/bin/nats-server", env!("CARGO_BIN_EXE_sinew"))
            .replace("/usr/local/bin/sinew", env!("CARGO_BIN_EXE_sinew"));
        assert!(text.contains(env!("CARGO_BIN_EXE_sinew")), "{} starts something else", unit.display());
        let copy = folder.path().join(unit.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        units.push(copy);
    }
    let verified = Command::new("systemd-analyze").arg("verify").args(&units).output().unwrap();
    let complaints: Vec<String> = said(&verified)
        .lines()
        .filter(|line| line.contains("sinew") || line.contains("nats"))
        .map(str::to_owned)
        .collect();
    assert!(verified.status.success() && complaints.is_empty(), "{}", said(&verified));
    for unit in &units {
        let rated = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold", MOST_EXPOSED])
            .arg(unit)
            .output()
            .unwrap();
        assert!(rated.status.success(), "{}: {}", unit.display(), said(&rated));
    }
}

#[test]
fn certificates_are_no_copies_of_the_time_of_a_start() {
    let mut serves_tls = 0;
    for unit in all("systemd", "service") {
        let text = read(&unit);
        if !text.contains("--tls-certificate") {
            continue;
        }
        serves_tls += 1;
        let copies: Vec<&str> = text.lines().filter(|line| line.starts_with("LoadCredential")).collect();
        assert!(copies.is_empty(), "{}: a renewal does not reach {copies:?}", unit.display());
        assert!(text.contains("--tls-certificate /etc/sinew/tls/"), "{}", unit.display());
    }
    assert_eq!(serves_tls, 1);
}

#[test]
fn a_wrong_unit_is_noticed() {
    if !has("systemd-analyze", "install systemd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.service");
    fs::write(&path, "[Service]\nType=often\nExecStart=/no/such/program\n").unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
    assert!(!verified.status.success(), "{}", said(&verified));
}
