//! Rendering of the table as nats-server configuration and as nsc commands.

use crate::code;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::guest::{Guest, GuestPassage, PassageDirection, passages};
use super::{Permissions, RESPONSE_MINUTES, Role};
use crate::Token;

/// Tenant: an account with its own namespace.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The account's name.
    pub account: String,
    /// The namespace of its mesh.
    pub namespace: String,
    /// Its users.
    pub users: Vec<User>,
    /// Agents that work for the tenant from separate accounts.
    pub guests: Vec<Guest>,
    /// Maximum size of its streams on disk, in bytes; the limit of the server if absent.
    pub max_file: Option<u64>,
    /// Maximum size of its streams in memory, in bytes; the limit of the server if absent.
    pub max_memory: Option<u64>,
}

/// Maximum number of streams of an account: a mesh has 14, and its users may create their own.
const MAX_ACCOUNT_STREAMS: u32 = 64;
/// Maximum number of consumers of an account.
const MAX_ACCOUNT_CONSUMERS: u32 = 10_000;
/// Name of the account for the server's own events and requests.
const SYSTEM_ACCOUNT: &str = "SYS";

/// User of a tenant. Its name is also its token in subjects: for an agent, the name of the agent.
#[derive(Clone, Debug)]
pub struct User {
    /// The name.
    pub name: String,
    /// Roles of the user. A user without a role has no rights.
    pub roles: Vec<Role>,
    /// Credentials of the user.
    pub login: Login,
    /// Agents and workflows that it may call in addition to those that its roles allow.
    pub calls: Vec<String>,
}

/// Credential that proves a user's name.
#[derive(Clone)]
pub enum Login {
    /// Password in plain text or as a bcrypt hash of nats-server.
    Password(String),
    /// Public NKey, `U…`.
    Nkey(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password(_) => f.write_str("Password(..)"),
            Self::Nkey(key) => f.debug_tuple("Nkey").field(key).finish(),
        }
    }
}

/// Error for tenants that cannot be rendered as configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenant {
    /// A name is empty or contains a control character.
    #[error("the {0} of a tenant is empty or contains a control character")]
    Text(&'static str),
    /// Not a user's public NKey.
    #[error("user {0:?} has no public NKey: expected U and 55 letters and digits")]
    Nkey(String),
    /// Two users, or two tenants, that the server could not distinguish.
    #[error("duplicate user or tenant {0:?}")]
    Twice(String),
}

impl BadTenant {
    /// Operator code.
    pub const CODE: &str = code::RIGHTS_NOT_WRITABLE.as_str();
}

/// Renders the `accounts` block for nats-server: one account per tenant, users with exactly the
/// rights of their roles, and one account per guest with the subjects shared between the two. The
/// system account has the user `sys` if a login for it is given, otherwise no user.
pub fn config(tenants: &[Tenant], system: Option<&Login>) -> Result<String, BadTenant> {
    let user = system.map(|login| credential("sys", login)).transpose()?;
    let user = user.map(|user| format!(" {{ {user} }} ")).unwrap_or_default();
    if tenants.iter().any(|tenant| tenant.account == SYSTEM_ACCOUNT) {
        return Err(BadTenant::Twice(SYSTEM_ACCOUNT.to_owned()));
    }
    let tenants = accounts(tenants)?;
    Ok(format!(
        "# Rights of a Sinew mesh. Include this file in the server's configuration. There is no default user:\n\
         # other clients are rejected.\naccounts {{\n  \"{SYSTEM_ACCOUNT}\": {{ users: [{user}] }}\n\
         {tenants}}}\nsystem_account: \"{SYSTEM_ACCOUNT}\"\n"
    ))
}

/// Renders the content of that block, so that the output for several tenants can be combined in one
/// block.
pub fn accounts(tenants: &[Tenant]) -> Result<String, BadTenant> {
    let mut out = String::new();
    let mut accounts = Vec::new();
    for tenant in tenants {
        unique(&mut accounts, &tenant.account)?;
        for guest in &tenant.guests {
            unique(&mut accounts, &guest.account(&tenant.account))?;
        }
        write_tenant(&mut out, tenant)?;
    }
    Ok(out)
}

fn write_tenant(out: &mut String, tenant: &Tenant) -> Result<(), BadTenant> {
    let mut names = Vec::new();
    let everybody = tenant.users.iter().map(|user| &user.name);
    for name in everybody.chain(tenant.guests.iter().map(|guest| &guest.name)) {
        unique(&mut names, Token::of(name).as_str())?;
    }
    let guests = tenant.guests.iter().map(|guest| {
        let rights = guest.permissions(&tenant.namespace);
        (guest, guest.account(&tenant.account), passages(&tenant.namespace, &rights), rights)
    });
    let guests: Vec<_> = guests.collect();
    let mut doors = AccountPassages::default();
    for (_, account, passages, _) in &guests {
        doors.open(account, passages, &[PassageDirection::Answered]);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(out, "  {}: {{", quoted("account", &tenant.account)?);
    let bytes = [("max_file", tenant.max_file), ("max_memory", tenant.max_memory)];
    let bytes = bytes.into_iter().filter_map(|(limit, bytes)| Some(format!("{limit}: {}, ", bytes?)));
    let _ = writeln!(
        out,
        "    jetstream: {{ {}max_streams: {MAX_ACCOUNT_STREAMS}, max_consumers: {MAX_ACCOUNT_CONSUMERS} }}",
        bytes.collect::<String>()
    );
    doors.write(out)?;
    out.push_str("    users: [\n");
    for user in &tenant.users {
        let name = Token::of(&user.name);
        let rights = user.roles.iter().map(|role| role.permissions(&tenant.namespace, &name));
        let calls = user.calls.iter().map(|called| Role::calls(&tenant.namespace, &name, called));
        let rights = rights.chain(calls).fold(Permissions::default(), Permissions::and);
        let roles: Vec<&str> = user.roles.iter().map(|role| role.as_str()).collect();
        write_user(out, &user.name, &roles.join(", "), &user.login, &rights)?;
    }
    out.push_str("    ]\n  }\n");
    for (guest, account, passages, rights) in &guests {
        let _ = writeln!(out, "  {}: {{", quoted("account", account)?);
        // Without streams, the server cannot be made to change any.
        out.push_str("    jetstream: disabled\n");
        let mut doors = AccountPassages::default();
        doors.open(&tenant.account, passages, &[PassageDirection::Said, PassageDirection::Heard]);
        doors.write(out)?;
        out.push_str("    users: [\n");
        write_user(out, &guest.name, "agent, a guest", &guest.login, rights)?;
        out.push_str("    ]\n  }\n");
    }
    Ok(())
}

/// Imports and exports of an account.
#[derive(Default)]
struct AccountPassages<'a> {
    exports: BTreeMap<&'a GuestPassage, Vec<&'a str>>,
    imports: Vec<(&'a str, &'a GuestPassage)>,
}

impl<'a> AccountPassages<'a> {
    /// Adds the subjects shared with another account: imports those with a direction in `taken`,
    /// exports the others.
    fn open(&mut self, account: &'a str, passages: &'a [GuestPassage], taken: &[PassageDirection]) {
        for passage in passages {
            if taken.contains(&passage.way) {
                self.imports.push((account, passage));
            } else {
                self.exports.entry(passage).or_default().push(account);
            }
        }
    }

    fn write(&self, out: &mut String) -> Result<(), BadTenant> {
        if !self.exports.is_empty() {
            out.push_str("    exports: [\n");
        }
        for (passage, accounts) in &self.exports {
            let accounts: Result<Vec<_>, _> = accounts.iter().map(|name| quoted("account", name)).collect();
            let (accounts, subject) = (accounts?.join(", "), quoted("subject", &passage.subject)?);
            let _ = write!(out, "      {{ {}: {subject}, accounts: [{accounts}]", passage.kind());
            if passage.many {
                out.push_str(", response_type: Stream");
            }
            if let Some(minutes) = passage.minutes {
                let _ = write!(out, ", response_threshold: \"{minutes}m\"");
            }
            out.push_str(" }\n");
        }
        if !self.exports.is_empty() {
            out.push_str("    ]\n");
        }
        if !self.imports.is_empty() {
            out.push_str("    imports: [\n");
        }
        for (account, passage) in &self.imports {
            let (account, subject) = (quoted("account", account)?, quoted("subject", &passage.subject)?);
            let kind = passage.kind();
            let _ = writeln!(out, "      {{ {kind}: {{ account: {account}, subject: {subject} }} }}");
        }
        if !self.imports.is_empty() {
            out.push_str("    ]\n");
        }
        Ok(())
    }
}

impl GuestPassage {
    /// Returns the server's name for the kind: `stream` for messages, `service` for requests with
    /// responses.
    fn kind(&self) -> &'static str {
        if self.way == PassageDirection::Heard { "stream" } else { "service" }
    }
}

fn write_user(
    out: &mut String,
    name: &str,
    roles: &str,
    login: &Login,
    rights: &Permissions,
) -> Result<(), BadTenant> {
    let login = credential(name, login)?;
    let _ = writeln!(out, "      # {}: {roles}", Token::of(name));
    let _ = writeln!(out, "      {{ {login}, permissions: {{");
    for (verb, subjects) in [("publish", &rights.publish), ("subscribe", &rights.subscribe)] {
        // An empty list would remove all limits.
        if subjects.is_empty() {
            let _ = writeln!(out, "        {verb}: {{ deny: [\">\"] }}");
            continue;
        }
        let _ = writeln!(out, "        {verb}: {{ allow: [");
        for subject in subjects {
            let _ = writeln!(out, "          {}", quoted("subject", subject)?);
        }
        out.push_str("        ] }\n");
    }
    if rights.responses > 0 {
        let (most, minutes) = (rights.responses, RESPONSE_MINUTES);
        let _ = writeln!(out, "        allow_responses: {{ max: {most}, expires: \"{minutes}m\" }}");
    }
    out.push_str("      } }\n");
    Ok(())
}

/// Renders the login of a user in the server's syntax.
fn credential(name: &str, login: &Login) -> Result<String, BadTenant> {
    match login {
        Login::Password(password) => {
            // The server identifies password users by name, across all accounts.
            Ok(format!("user: {}, password: {}", quoted("user", name)?, quoted("password", password)?))
        }
        Login::Nkey(key) => {
            let letters = key.bytes().all(|b| b.is_ascii_uppercase() || (b'2'..=b'7').contains(&b));
            if !(key.len() == 56 && key.starts_with('U') && letters) {
                return Err(BadTenant::Nkey(name.to_owned()));
            }
            Ok(format!("nkey: {key}"))
        }
    }
}

/// Renders commands that create one signing key per role in operator mode. A user created with such
/// a key gets the rights of the role under its own name, which must be a valid token without
/// encoding.
pub fn nsc(account: &str, namespace: &str) -> Result<String, BadTenant> {
    let account = shell("account", account)?;
    let mut out = String::from(
        "#!/bin/sh\n# One signing key per role; `nsc add user --private-key ROLE` makes a user of it.\nset -eu\n",
    );
    for role in Role::ALL {
        let rights = role.named(namespace, "{{name()}}");
        let _ = writeln!(
            out,
            "\nnsc edit signing-key --account {account} --role {} --sk generate \\",
            role.as_str()
        );
        for (flag, subjects) in [("--allow-pub", &rights.publish), ("--allow-sub", &rights.subscribe)] {
            for subject in subjects {
                let _ = writeln!(out, "  {flag} {} \\", shell("subject", subject)?);
            }
        }
        if rights.responses > 0 {
            let (most, minutes) = (rights.responses, RESPONSE_MINUTES);
            let _ = writeln!(out, "  --allow-pub-response={most} --response-ttl {minutes}m \\");
        }
        out.push_str("  --deny-sub '_INBOX.>'\n");
    }
    Ok(out)
}

fn unique(names: &mut Vec<String>, name: &str) -> Result<(), BadTenant> {
    if names.iter().any(|known| known == name) {
        return Err(BadTenant::Twice(name.to_owned()));
    }
    names.push(name.to_owned());
    Ok(())
}

/// Quotes a string in double quotes, with the two escapes that matter to nats-server.
fn quoted(what: &'static str, text: &str) -> Result<String, BadTenant> {
    Ok(format!("\"{}\"", plain(what, text)?.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Quotes a string in single quotes, for a shell.
fn shell(what: &'static str, text: &str) -> Result<String, BadTenant> {
    Ok(format!("'{}'", plain(what, text)?.replace('\'', r"'\''")))
}

fn plain<'a>(what: &'static str, text: &'a str) -> Result<&'a str, BadTenant> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(BadTenant::Text(what));
    }
    Ok(text)
}
