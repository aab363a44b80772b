//! Two tenants on one server, as the table says.

use std::fs::{File, read_to_string};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_protocol::Token;

use crate::permission::wire::Wire;

/// The password of everybody.
pub(crate) const PASSWORD: &str = "not-a-secret-7f3a";

/// The tenants: an account and a namespace each.
pub(crate) const NORTH: Tenant = Tenant { account: "NORTH", namespace: "north", prefix: "n-" };
pub(crate) const SOUTH: Tenant = Tenant { account: "SOUTH", namespace: "south", prefix: "s-" };

/// A tenant, separated by an account.
#[derive(Clone, Copy)]
pub(crate) struct Tenant {
    pub(crate) account: &'static str,
    pub(crate) namespace: &'static str,
    prefix: &'static str,
}

/// The roles, by the letters of the tables here.
pub(crate) const ROLES: [(char, &str); 7] = [
    ('A', "agent"),
    ('E', "executor"),
    ('C', "client"),
    ('G', "gateway"),
    ('O', "operator"),
    ('M', "admin"),
    ('P', "provisioner"),
];

impl Tenant {
    /// The user of a role; `root` may do everything in its account, and is not in the table. An agent's name, which begins
    /// with a capital, is its user.
    pub(crate) fn user(&self, role: &str) -> String {
        if role.starts_with(char::is_uppercase) { role.to_owned() } else { format!("{}{role}", self.prefix) }
    }

    /// The name of a stream.
    pub(crate) fn stream(&self, kind: &str) -> String {
        match kind {
            "FLEET" => format!("KV_{}_{kind}", self.namespace),
            "PLANS" => format!("OBJ_{}_{kind}", self.namespace),
            _ => format!("{}_{kind}", self.namespace),
        }
    }

    /// A user of each role and a second agent.
    pub(crate) fn users(&self) -> Vec<(String, &'static str)> {
        let more = [(self.user("agent2"), "agent")];
        ROLES.iter().map(|(_, role)| (self.user(role), *role)).chain(more).collect()
    }
}

/// Returns the content of `accounts { … }` for these users and guests of a tenant, as the command prints it, with a user
/// of all rights in each account.
pub(crate) fn account(tenant: &Tenant, users: &[(String, &str)], guests: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
    command.args(["mesh", "permissions", "--format", "nats", "--part"]).env("SINEW_TEST_PASSWORD", PASSWORD);
    command.args(["--account", tenant.account, "--namespace", tenant.namespace]);
    for (name, role) in users {
        let (role, calls) = role.split_once(':').unwrap_or((role, ""));
        command.arg(format!("--user={name}:{role}:env:SINEW_TEST_PASSWORD"));
        if !calls.is_empty() {
            command.arg(format!("--calls={name}:{calls}"));
        }
    }
    for guest in guests {
        let (name, calls) = guest.split_once(':').unwrap_or((guest, ""));
        command.arg(format!("--guest={name}:env:SINEW_TEST_PASSWORD"));
        command.arg(format!("--guest-calls={name}:{calls}"));
    }
    let output = command.output().expect("sinew starts");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let guests = guests.iter().map(|guest| format!("root-{}", Token::of(guest.split(':').next().unwrap())));
    let roots: Vec<_> = ["root".to_owned()].into_iter().chain(guests).collect();
    let lists: Vec<&str> = text.split("    users: [\n").collect();
    assert_eq!(lists.len(), roots.len() + 1);
    let filled = roots.iter().zip(&lists[1..]).map(|(root, list)| {
        format!("    users: [\n      {{ user: \"{}\", password: \"{PASSWORD}\" }}\n{list}", tenant.user(root))
    });
    [lists[0].to_owned()].into_iter().chain(filled).collect::<Vec<_>>().concat()
}

/// The accounts of both tenants with all their users, and these agents of the first, each with the agents and workflows that
/// it may call behind a colon.
pub(crate) fn accounts(agents: &[&str]) -> String {
    accounts_with(agents, &[])
}

/// The same with these guests of the first, each with what it may call behind a colon.
pub(crate) fn accounts_with(agents: &[&str], guests: &[&str]) -> String {
    let agents: Vec<(&str, String)> = agents
        .iter()
        .map(|agent| {
            let (name, calls) = agent.split_once(':').unwrap_or((agent, ""));
            (name, format!("agent:{calls}"))
        })
        .collect();
    let agents = agents.iter().map(|(name, role)| ((*name).to_owned(), role.as_str()));
    let users = NORTH.users();
    let users = users.iter().map(|(name, role)| (name.clone(), *role));
    let north: Vec<(String, &str)> = users.chain(agents).collect();
    let (north, south) = (account(&NORTH, &north, guests), account(&SOUTH, &SOUTH.users(), &[]));
    format!("accounts {{\n{north}{south}}}\n")
}

/// P11: the configuration of a server that words acknowledgements in the old and in the new way.
pub(crate) fn acks_in_both_shapes() -> [String; 2] {
    [false, true].map(|v2| format!("feature_flags {{ js_ack_fc_v2: {v2} }}"))
}

/// A service, which ends with the test.
pub(crate) struct Service(Child);

impl Service {
    /// Returns whether the process is gone.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that asks everybody for a password.
pub(crate) struct World {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    /// A server with these accounts, and more configuration; nothing is provisioned.
    pub(crate) fn with(accounts: &str, more: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options =
            ServerOptions { config_extra: Some(format!("{accounts}{more}\n")), ..Default::default() };
        let server = runtime.block_on(Server::start(options)).expect("a server");
        Self { server, folder: tempfile::tempdir().unwrap(), _runtime: runtime }
    }

    /// Both tenants, provisioned by their provisioners.
    pub(crate) fn new(more: &str) -> Self {
        let world = Self::with(&accounts(&[]), more);
        for tenant in [NORTH, SOUTH] {
            world.ok(&tenant, "provisioner", &["mesh", "provision", "--shards", "2", "--keep-events"]);
        }
        world
    }

    /// A command with the credentials of a role.
    pub(crate) fn command(&self, tenant: &Tenant, role: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        command.args(args).env("NATS_URL", self.server.url()).env("NO_COLOR", "1");
        command.env("NATS_USER", tenant.user(role)).env("NATS_PASSWORD", PASSWORD);
        command.env("SINEW_NAMESPACE", tenant.namespace).env_remove("NATS_CONTEXT");
        command.env("XDG_CONFIG_HOME", self.folder.path()).current_dir(self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    /// Writes a file into the folder in which commands are started.
    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("roles.log")
    }

    /// Returns the logs of the services.
    pub(crate) fn logged(&self) -> String {
        read_to_string(self.log()).unwrap_or_default()
    }

    /// Starts a service.
    pub(crate) fn serve(&self, tenant: &Tenant, role: &str, args: &[&str]) -> Service {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let started = self.command(tenant, role, args).stdout(Stdio::null()).stderr(log).spawn();
        Service(started.expect("sinew starts"))
    }

    /// Waits until an agent's card is there.
    #[track_caller]
    pub(crate) fn until_online(&self, agent: &str) {
        let mut operator = self.wire(&NORTH, "operator");
        let subject = format!("{}.v1.card.{agent}", NORTH.namespace);
        operator.subscribe(&subject, None);
        assert!(operator.settle().is_empty());
        let call = format!("$JS.API.DIRECT.GET.{}.{subject}", NORTH.stream("CARDS"));
        // It is there already, or is heard when it comes.
        if operator.request(&call, "").is_ok_and(|card| !card.body.is_empty()) {
            return;
        }
        operator.hear(&format!("the card of {agent}"));
    }

    /// Runs a command that must end well, and gives its stdout.
    #[track_caller]
    pub(crate) fn ok(&self, tenant: &Tenant, role: &str, args: &[&str]) -> String {
        self.ends(tenant, role, args, 0).0
    }

    /// Runs a command that must end with this code, and gives stdout and stderr.
    #[track_caller]
    pub(crate) fn ends(&self, tenant: &Tenant, role: &str, args: &[&str], code: i32) -> (String, String) {
        let output = self.command(tenant, role, args).output().expect("sinew starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{role} {args:?}\nstdout: {out}\nstderr: {err}");
        (out, err)
    }

    /// A connection without a client.
    #[track_caller]
    pub(crate) fn wire(&self, tenant: &Tenant, role: &str) -> Wire {
        let user = tenant.user(role);
        Wire::login(self.server.port(), &user, PASSWORD).unwrap_or_else(|error| panic!("{user}: {error}"))
    }

    /// Returns the server's description of a stream, requested by a user with all rights.
    #[track_caller]
    pub(crate) fn state(&self, tenant: &Tenant, kind: &str) -> Value {
        let call = format!("$JS.API.STREAM.INFO.{}", tenant.stream(kind));
        let said = self.wire(tenant, "root").request(&call, "").expect("root may");
        let said: Value = serde_json::from_str(&said.body).unwrap();
        assert!(said["state"].is_object(), "{call}: {said}");
        said["state"].clone()
    }

    /// The place of the last message of every stream of a tenant.
    pub(crate) fn places(&self, tenant: &Tenant) -> Vec<(&'static str, u64, u64)> {
        let place = |kind| {
            let state = self.state(tenant, kind);
            (kind, state["last_seq"].as_u64().unwrap(), state["messages"].as_u64().unwrap())
        };
        crate::permission::expected::STREAMS.map(|(_, kind)| place(kind)).to_vec()
    }
}
