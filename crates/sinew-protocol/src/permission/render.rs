//! The table as configuration of nats-server, and as commands for nsc.

use std::fmt::{self, Write as _};

use super::{Permissions, RESPONSE_MINUTES, Role};
use crate::Token;

/// A tenant: an account with a namespace of its own.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The account's name.
    pub account: String,
    /// The namespace of its mesh.
    pub namespace: String,
    /// Its users.
    pub users: Vec<User>,
    /// The most bytes of its streams on disk; as much as the server has when absent.
    pub max_file: Option<u64>,
}

/// A user of a tenant. Its name is what it is called in subjects: an agent's is the agent's.
#[derive(Clone, Debug)]
pub struct User {
    /// The name.
    pub name: String,
    /// What it is; nothing at all is allowed to a user without a role.
    pub roles: Vec<Role>,
    /// How it proves to be that.
    pub login: Login,
}

/// What a user proves its name with.
#[derive(Clone)]
pub enum Login {
    /// A password, in clear or as nats-server's bcrypt.
    Password(String),
    /// The public key of an NKey, `U…`.
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

/// Why tenants cannot be written as configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenant {
    /// Something is empty or holds a control character.
    #[error("the {0} of a tenant is empty or holds a control character")]
    Text(&'static str),
    /// Not a user's public NKey.
    #[error("user {0:?} has no public NKey: expected U and 55 letters and digits")]
    Nkey(String),
    /// Two users, or two tenants, that the server would take for one.
    #[error("{0:?} is there twice")]
    Twice(String),
}

impl BadTenant {
    /// The operator code.
    pub const CODE: &str = "SINEW-7006";
}

/// The `accounts` block for nats-server: one account per tenant, users with exactly the rights of their roles.
pub fn config(tenants: &[Tenant]) -> Result<String, BadTenant> {
    let mut out = String::from(
        "# Rights of a Sinew mesh. Include this file in the server's configuration. There is no default user:\n\
         # whoever does not log in as one of these is refused.\naccounts {\n",
    );
    let mut names = Vec::new();
    for tenant in tenants {
        unique(&mut names, &tenant.account)?;
        write_tenant(&mut out, tenant)?;
    }
    out.push_str("}\n");
    Ok(out)
}

fn write_tenant(out: &mut String, tenant: &Tenant) -> Result<(), BadTenant> {
    let account = quoted("account", &tenant.account)?;
    // Writing to a text cannot fail.
    let _ = writeln!(out, "  {account}: {{");
    match tenant.max_file {
        Some(bytes) => {
            let _ = writeln!(out, "    jetstream: {{ max_file: {bytes} }}");
        }
        None => out.push_str("    jetstream: enabled\n"),
    }
    out.push_str("    users: [\n");
    let mut names = Vec::new();
    for user in &tenant.users {
        unique(&mut names, Token::of(&user.name).as_str())?;
        let login = match &user.login {
            Login::Password(password) => {
                // The account's users are told apart by names, across all accounts of a server.
                format!("user: {}, password: {}", quoted("user", &user.name)?, quoted("password", password)?)
            }
            Login::Nkey(key) => {
                let letters = key.bytes().all(|b| b.is_ascii_uppercase() || (b'2'..=b'7').contains(&b));
                if !(key.len() == 56 && key.starts_with('U') && letters) {
                    return Err(BadTenant::Nkey(user.name.clone()));
                }
                format!("nkey: {key}")
            }
        };
        let name = Token::of(&user.name);
        let rights = user.roles.iter().map(|role| role.permissions(&tenant.namespace, &name));
        let rights = rights.fold(Permissions::default(), Permissions::and);
        let roles: Vec<&str> = user.roles.iter().map(|role| role.as_str()).collect();
        let _ = writeln!(out, "      # {name}: {}", roles.join(", "));
        let _ = writeln!(out, "      {{ {login}, permissions: {{");
        for (verb, subjects) in [("publish", &rights.publish), ("subscribe", &rights.subscribe)] {
            // An empty list of rights would be no limit at all.
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
    }
    out.push_str("    ]\n  }\n");
    Ok(())
}

/// Commands that make one signing key per role in operator mode. A user made with such a key gets the rights of the role
/// under its own name, which must be a token as it stands.
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

/// A text in double quotes; nats-server knows two escapes that matter.
fn quoted(what: &'static str, text: &str) -> Result<String, BadTenant> {
    Ok(format!("\"{}\"", plain(what, text)?.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A text in single quotes, for a shell.
fn shell(what: &'static str, text: &str) -> Result<String, BadTenant> {
    Ok(format!("'{}'", plain(what, text)?.replace('\'', r"'\''")))
}

fn plain<'a>(what: &'static str, text: &'a str) -> Result<&'a str, BadTenant> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(BadTenant::Text(what));
    }
    Ok(text)
}
