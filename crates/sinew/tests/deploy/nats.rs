//! Configurations of nats-server, read by nats-server itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use sinew_mesh::server::Server;
use sinew_protocol::permission::{Guest, Login, Role, Tenant, User, config};

use super::{all, deploy, has, read, said};

/// Looked for as in every test of the mesh; installed if it must.
pub(super) fn server() -> PathBuf {
    let script = deploy("get-nats.sh");
    Server::find_or_install(&script).unwrap_or_else(|error| panic!("no nats-server: {error}"))
}

/// Runs `nats-server -t` on a configuration in a folder.
fn tried(server: &Path, folder: &Path, file: &Path) -> Output {
    Command::new(server)
        .arg("-t")
        .arg("-c")
        .arg(file)
        .current_dir(folder)
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .envs([("NATS_NAME", "nats-0"), ("POD_NAME", "nats-0"), ("NATS_STORE", "store")])
        .envs([("NATS_SYS_PASSWORD", "system-password"), ("NATS_SINEW_PASSWORD", "sinew-password")])
        .output()
        .unwrap()
}

/// A folder as a server would find it: the files, and certificates where they are said to be.
fn folder(certificates: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in all("nats", "conf") {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    for name in ["accounts", "tls"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::copy(deploy("nats/accounts.conf"), folder.path().join("accounts/accounts.conf")).unwrap();
    for (of, name) in [("compose/nats.conf", "compose.conf"), ("kubernetes/nats.conf", "kubernetes.conf")] {
        // Where Secrets are mounted in a pod.
        let tls = folder.path().join("tls");
        let text = read(&deploy(of))
            .replace("/etc/nats/tls", tls.to_str().unwrap())
            .replace("\"/data\"", "\"data\"");
        fs::write(folder.path().join(name), text).unwrap();
    }
    if certificates {
        let tls = folder.path().join("tls");
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ])
            .args([
                "-subj",
                "/CN=nats",
                "-addext",
                "subjectAltName=DNS:nats",
                "-keyout",
                "server.key",
                "-out",
                "server.crt",
            ])
            .current_dir(&tls)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", said(&made));
        for (from, to) in [("server.crt", "ca.crt"), ("server.crt", "tls.crt"), ("server.key", "tls.key")] {
            fs::copy(tls.join(from), tls.join(to)).unwrap();
        }
    }
    folder
}

/// Configurations a server is started with, and whether they need certificates.
const SERVERS: [(&str, bool); 5] = [
    ("dev.conf", false),
    ("compose.conf", false),
    ("single.conf", true),
    ("cluster.conf", true),
    ("kubernetes.conf", true),
];

#[test]
fn the_server_takes_every_configuration() {
    let server = server();
    let certificates = has("openssl", "install openssl");
    let folder = folder(certificates);
    for (file, needs) in SERVERS.iter().filter(|(_, needs)| certificates || !needs) {
        let output = tried(&server, folder.path(), Path::new(file));
        assert!(output.status.success(), "{file} (certificates: {needs}): {}", said(&output));
    }
}

#[test]
fn generated_permissions_take_the_place_of_the_one_user() {
    let users = Role::ALL.into_iter().map(|role| User {
        name: role.as_str().to_owned(),
        roles: vec![role],
        login: Login::Password(format!("password-of-{}", role.as_str())),
        calls: Vec::new(),
    });
    let guest = Guest {
        name: "stranger".to_owned(),
        login: Login::Password("password-of-stranger".to_owned()),
        calls: vec!["agent".to_owned()],
    };
    let tenant = Tenant {
        account: "SINEW".to_owned(),
        namespace: "sinew".to_owned(),
        users: users.collect(),
        guests: vec![guest],
        max_file: Some(1 << 30),
        max_memory: None,
    };
    let folder = folder(false);
    fs::write(folder.path().join("accounts.conf"), config(&[tenant], None).unwrap()).unwrap();
    let output = tried(&server(), folder.path(), Path::new("compose.conf"));
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_wrong_configuration_is_noticed() {
    let server = server();
    let folder = folder(false);
    // Without a password in the environment, without certificates, with a word nobody knows: all refused.
    let compose = folder.path().join("compose.conf");
    let text = read(&compose);
    fs::write(folder.path().join("unknown.conf"), format!("{text}\nmax_paylod: 1MB\n")).unwrap();
    let accounts = read(&folder.path().join("accounts.conf")).replace("NATS_SINEW_PASSWORD", "NATS_NOT_SET");
    fs::write(folder.path().join("accounts.conf"), accounts).unwrap();
    for file in ["unknown.conf", "compose.conf", "single.conf"] {
        let output = tried(&server, folder.path(), Path::new(file));
        assert!(!output.status.success(), "{file} was taken: {}", said(&output));
    }
}

#[test]
fn every_server_syncs_what_it_acknowledges_and_hides_its_monitoring() {
    let mut seen = 0;
    for file in
        all("nats", "conf").into_iter().chain([deploy("compose/nats.conf"), deploy("kubernetes/nats.conf")])
    {
        let text = read(&file);
        let lines = || text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let stores = lines().filter(|line| line.starts_with("store_dir:")).count();
        seen += stores;
        let syncs = lines().filter(|line| *line == "sync_interval: always").count();
        assert_eq!(stores, syncs, "{}: JetStream without sync_interval: always", file.display());
        for monitoring in lines().filter(|line| line.starts_with("http:")) {
            let pod = file.ends_with("kubernetes/nats.conf");
            assert!(pod || monitoring.contains("127.0.0.1"), "{}: {monitoring}", file.display());
        }
        assert!(lines().all(|line| !line.contains("no_auth_user")), "{}", file.display());
    }
    assert_eq!(seen, SERVERS.len());
}
