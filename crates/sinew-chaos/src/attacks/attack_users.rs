//! Users of a run with attackers, with exactly the permissions of their roles.

use sinew_protocol::permission::{Guest, Login, Role, Tenant, User, config};

use super::hostile_messages::Attacker;
use super::raw_client::PASSWORD;
use crate::Fallible;
use crate::roles::AGENTS;

/// Maximum lives of an executor, every fourth of which has a unique name.
const MAX_LIVES: u64 = 200;

/// Returns the lives of an executor with unique names.
fn executor_lives() -> impl Iterator<Item = u64> {
    (0..MAX_LIVES).filter(|life| life % 4 == 3)
}

fn login() -> Login {
    Login::Password(PASSWORD.to_owned())
}

fn user(name: &str, roles: &[Role]) -> User {
    User { name: name.to_owned(), roles: roles.into(), login: login(), calls: Vec::new() }
}

fn tenant(account: &str, namespace: &str, users: Vec<User>, guests: Vec<Guest>) -> Tenant {
    Tenant {
        account: account.to_owned(),
        namespace: namespace.to_owned(),
        users,
        guests,
        max_file: None,
        max_memory: None,
    }
}

/// Returns the configuration of the servers. Without a login, a user can only query their readiness.
pub(super) fn configuration(executors: u32) -> Fallible<String> {
    let mut users = vec![
        user("chaos", &[Role::Provisioner, Role::Admin, Role::Client]),
        user("gateway", &[Role::Gateway]),
        user(Attacker::Client.user(), &[Role::Client]),
        user(Attacker::Agent.user(), &[Role::Agent]),
        user(Attacker::Thief.user(), &[Role::Executor, Role::Admin]),
    ];
    users.extend(AGENTS.iter().map(|(name, ..)| user(name, &[Role::Agent])));
    for nth in 0..executors {
        let name = format!("executor-{nth}");
        let lives = executor_lives().map(|life| format!("{name}-{life}"));
        users.extend(lives.chain([name.clone()]).map(|name| user(&name, &[Role::Executor])));
    }
    let guest =
        Guest { name: Attacker::Guest.user().to_owned(), login: login(), calls: vec!["gamma".to_owned()] };
    let neighbour = user(
        Attacker::OtherTenant.user(),
        &[Role::Executor, Role::Admin, Role::Client, Role::Agent, Role::Gateway],
    );
    let tenants =
        [tenant("NORTH", "chaos", users, vec![guest]), tenant("SOUTH", "south", vec![neighbour], Vec::new())];
    // A separate account without streams, in which servers report whether they have a leader.
    let ready = format!(
        "accounts {{\n  \"READY\": {{ jetstream: enabled, users: [{{ user: \"ready\", password: \"{PASSWORD}\" }}] }}"
    );
    let tenants = config(&tenants, None)?.replacen("accounts {", &ready, 1);
    Ok(format!("{tenants}no_auth_user: ready\n"))
}
