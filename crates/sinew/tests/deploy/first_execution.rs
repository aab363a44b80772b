//! The path of deploy/README.md, word for word: certificates, passwords, accounts, environment files, units, execution.
//!
//! Absolute paths lie below a folder of the test, ports are free ones, and `systemctl` is a script that does what the
//! units say.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{deploy, has, read, root, said};

/// Starts the programs of units as they say, in the background but for `oneshot`.
const SYSTEMCTL: &str = r#"#!/bin/bash
set -euo pipefail
unit=${!#}
[[ $unit == daemon-reload ]] && exit
instance=; name=$unit
[[ $unit == *@* ]] && { instance=${unit#*@}; name=${unit%%@*}@; }
file=ROOT/etc/systemd/system/$name.service
says() { sed -n "s|^$1=||p" "$file" | sed "s|%i|$instance|g"; }
set -a; . "$(says EnvironmentFile)"; set +a
folder=$(says WorkingDirectory)
cd "${folder:-/}"
if [[ $(says Type) == oneshot ]]; then exec $(says ExecStart); fi
setsid $(says ExecStart) > "ROOT/$unit.log" 2>&1 < /dev/null &
echo $! >> ROOT/pids
after=$(says ExecStartPost)
[[ -z $after ]] || eval "$after"
"#;

/// The blocks of a section that are fenced as `sh`.
fn blocks_of(document: &str, section: &str) -> String {
    let (_, rest) = document.split_once(&format!("## {section}\n")).unwrap();
    let rest = rest.split("\n## ").next().unwrap();
    let blocks: Vec<&str> =
        rest.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 3, "{rest}");
    blocks.concat()
}

/// Ends the programs that the units started.
struct StartedUnits<'a>(&'a Path);

impl Drop for StartedUnits<'_> {
    fn drop(&mut self) {
        let pids = fs::read_to_string(self.0.join("pids")).unwrap_or_default();
        // The server goes last, so that the others can leave it.
        for pid in pids.split_whitespace().rev() {
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
    }
}

#[test]
fn the_path_of_the_readme_leads_to_an_execution() {
    if !has("openssl", "install openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, monitoring) = (free().to_string(), free().to_string());
    let place = here.to_str().unwrap();
    let moved = |text: &str| {
        let mut text = text.to_owned();
        for path in ["/etc/nats", "/etc/sinew", "/etc/systemd", "/usr/local/bin", "/var/lib/nats"] {
            text = text.replace(path, &format!("{place}{path}"));
        }
        text.replace("4222", &port)
            .replace("127.0.0.1:8222", &format!("127.0.0.1:{monitoring}"))
            .replace("--health-port 8080", "--health-port 0")
            .replace("max_file_store: 64GB", "max_file_store: 1GB")
            .replace("--max-file 48GB", "--max-file 900MB")
    };
    // The checkout, the folders of a system, and the programs that need one.
    for path in ["etc/systemd/system", "usr/local/bin", "var/lib/nats", "target/release", "stubs"] {
        fs::create_dir_all(here.join(path)).unwrap();
    }
    for path in ["nats", "systemd", "kubernetes/agents", "kubernetes/flows"] {
        fs::create_dir_all(here.join("deploy").join(path)).unwrap();
        for entry in fs::read_dir(deploy(path)).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_file() {
                let to = here.join("deploy").join(path).join(entry.file_name().unwrap());
                fs::write(to, moved(&read(&entry))).unwrap();
            }
        }
    }
    let program = |path: &str, text: &str| {
        let path = here.join(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("deploy/get-nats.sh", &read(&root().join("deploy/get-nats.sh")));
    program("stubs/systemctl", &SYSTEMCTL.replace("ROOT", place));
    program("stubs/useradd", "#!/bin/sh\n");
    program("stubs/chown", "#!/bin/sh\n");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sinew"), here.join("target/release/sinew")).unwrap();

    let path = blocks_of(&read(&deploy("README.md")), "From nothing to the first execution");
    let _units = StartedUnits(here);
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &moved(&path)])
        .current_dir(here)
        .env("PATH", format!("{place}/stubs:{place}/usr/local/bin:{}", std::env::var("PATH").unwrap()))
        .env_remove("NATS_URL")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let logs: String = ["nats-server", "sinew-executor", "sinew-agent@greeter"]
        .into_iter()
        .map(|unit| fs::read_to_string(here.join(format!("{unit}.log"))).unwrap_or_default())
        .collect();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{logs}", said(&output));
    assert!(told.contains("\"text\": \"Hello, Ada!\""), "{}\n{logs}", said(&output));
    // Passwords are for their owner alone, and the accounts have their limits and the system account.
    for file in ["etc/nats/accounts.conf", "etc/sinew/executor.env", "etc/nats/tls/server.key"] {
        let mode = fs::metadata(here.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}: {mode:o}");
    }
    let accounts = read(&here.join("etc/nats/accounts.conf"));
    for part in [
        "max_file: 900000000, max_memory: 64000000, max_streams: 64",
        "user: \"sys\"",
        "system_account: \"SYS\"",
    ] {
        assert!(accounts.contains(part), "no {part} in\n{accounts:.2000}");
    }
}
