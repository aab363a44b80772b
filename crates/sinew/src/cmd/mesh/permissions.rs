//! `sinew mesh permissions`: the permissions of each role, for the server's configuration.

use clap::{Args, ValueEnum};
use serde_json::json;
use sinew_operations::failure::Failure;
use sinew_operations::quantity::parse_byte_count;
use sinew_protocol::Token;
use sinew_protocol::permission::{Guest, Login, Role, Tenant, User, accounts, config, nsc};
use sinew_protocol::subject::DEFAULT_NAMESPACE;

use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew mesh permissions --role agent --name reviewer
  sinew mesh permissions --format nats --user exec-1:executor:UABC… --user reviewer:agent:env:REVIEWER_PASSWORD
  sinew mesh permissions --format nats --user exec-1:executor:UABC… --guest stranger:env:STRANGER_PASSWORD
  sinew mesh permissions --format nsc --account SHOP > roles.sh";

/// Arguments of `sinew mesh permissions`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print the subjects that each role of a mesh may publish and subscribe to, and the access \
                  that its credentials imply: as a table, as configuration for nats-server, or as nsc \
                  commands. Needs no server.",
    after_help = EXAMPLES
)]
pub(crate) struct PermissionsArgs {
    /// Format of the output
    #[arg(long, value_enum, default_value_t = PermissionFormat::Table)]
    format: PermissionFormat,
    /// Only this role
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Option<Role>,
    /// User name in subjects; for an agent, the name of the agent
    #[arg(long, value_name = "NAME", default_value = "NAME")]
    name: String,
    /// Namespace of the mesh
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// NATS account of the mesh
    #[arg(long, value_name = "NAME", default_value = "SINEW")]
    account: String,
    /// A user for nats-server's configuration; LOGIN is a public nkey (U…) or env:VARIABLE for a password. May be repeated
    #[arg(long = "user", value_name = "NAME:ROLE[,ROLE]:LOGIN")]
    users: Vec<String>,
    /// Agents and workflows that an agent of --user may call, as a model's tools do. May be repeated
    #[arg(long = "calls", value_name = "USER:NAME[,NAME]")]
    user_calls: Vec<String>,
    /// An untrusted agent for nats-server's configuration, in a separate account. May be repeated
    #[arg(long = "guest", value_name = "NAME:LOGIN")]
    guests: Vec<String>,
    /// Agents and workflows that a guest may call. May be repeated
    #[arg(long = "guest-calls", value_name = "GUEST:NAME[,NAME]")]
    calls: Vec<String>,
    /// Disk storage limit of the account: 48GB, 512MB [default: the server's]
    #[arg(long, value_name = "SIZE")]
    max_file: Option<String>,
    /// Memory storage limit of the account [default: the server's]
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<String>,
    /// Login of the user `sys` of the system account, for the server's own events: a public nkey or env:VARIABLE
    #[arg(long, value_name = "LOGIN", conflicts_with = "part")]
    system: Option<String>,
    /// Omit the surrounding `accounts { }`, so that one such block can include the files of several tenants
    #[arg(long)]
    part: bool,
}

/// Formats of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PermissionFormat {
    /// Human-readable table, or structured output with -o
    Table,
    /// An `accounts` block for nats-server
    Nats,
    /// A script of nsc commands
    Nsc,
}

/// Prints permissions.
pub(super) fn permissions(args: &PermissionsArgs, output: &Output) -> Result<Exit, Failure> {
    if args.format != PermissionFormat::Table && output.is_machine() {
        return Err(Failure::usage("-o prints the table as data and cannot be combined with --format"));
    }
    for (option, is_given) in [
        ("--user", !args.users.is_empty()),
        ("--calls", !args.user_calls.is_empty()),
        ("--guest", !args.guests.is_empty()),
        ("--guest-calls", !args.calls.is_empty()),
        ("--max-file", args.max_file.is_some()),
        ("--max-memory", args.max_memory.is_some()),
        ("--system", args.system.is_some()),
        ("--part", args.part),
    ] {
        if args.format != PermissionFormat::Nats && is_given {
            return Err(Failure::usage(format!("{option} requires --format nats")));
        }
    }
    match args.format {
        PermissionFormat::Table => table(args, output),
        PermissionFormat::Nats => {
            if args.users.is_empty() {
                return Err(Failure::usage("--format nats needs users").hint("add --user NAME:ROLE:LOGIN"));
            }
            let mut users = args.users.iter().map(|text| user(text)).collect::<Result<Vec<_>, _>>()?;
            for (name, called) in called(&args.user_calls, "--calls", "USER:NAME[,NAME]")? {
                let user = users.iter_mut().find(|user| user.name == name);
                let none = || Failure::usage(format!("--calls {name}: no --user has this name"));
                user.ok_or_else(none)?.calls.extend(called);
            }
            let tenant = Tenant {
                account: args.account.clone(),
                namespace: args.namespace.clone(),
                users,
                guests: guests(&args.guests, &args.calls)?,
                max_file: args.max_file.as_deref().map(parse_byte_count).transpose()?,
                max_memory: args.max_memory.as_deref().map(parse_byte_count).transpose()?,
            };
            let system = args.system.as_deref().map(|proof| login("sys", proof)).transpose();
            let system = system.map_err(|why| Failure::usage(format!("--system {why}")))?;
            output.raw(&if args.part { accounts(&[tenant])? } else { config(&[tenant], system.as_ref())? });
        }
        PermissionFormat::Nsc => output.raw(&nsc(&args.account, &args.namespace)?),
    }
    Ok(Exit::Ok)
}

fn table(args: &PermissionsArgs, output: &Output) {
    let roles = Role::ALL.into_iter().filter(|role| args.role.is_none_or(|wanted| wanted == *role));
    let rows: Vec<_> = roles
        .map(|role| {
            let rights = role.permissions(&args.namespace, &Token::of(&args.name));
            json!({
                "role": role.as_str(),
                "publish": rights.publish,
                "subscribe": rights.subscribe,
                "responses": rights.responses,
                "opens": role.opens(),
            })
        })
        .collect();
    output.value(&rows, |rows| {
        let list = |value: &serde_json::Value| {
            let subjects = value.as_array().into_iter().flatten().filter_map(|subject| subject.as_str());
            subjects.fold(String::new(), |list, subject| list + "    " + subject + "\n")
        };
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        rows.iter()
            .map(|row| {
                let (role, opens) = (word(&row["role"]), word(&row["opens"]));
                let (publish, subscribe) = (list(&row["publish"]), list(&row["subscribe"]));
                format!("{role}\n  publish\n{publish}  subscribe\n{subscribe}  also allows: {opens}")
            })
            .collect::<Vec<_>>()
            .join("\n\n")
    });
}

fn role(word: &str) -> Result<Role, String> {
    let known = || Role::ALL.map(Role::as_str).join(", ");
    Role::parse(word).ok_or_else(|| format!("use one of {}", known()))
}

fn user(text: &str) -> Result<User, Failure> {
    let wrong = |why: String| Failure::usage(format!("--user {why}")).hint("write NAME:ROLE[,ROLE]:LOGIN");
    let mut parts = text.splitn(3, ':');
    let (Some(name), Some(roles), Some(proof)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong("takes a name, roles and a login".to_owned()));
    };
    let roles = roles.split(',').map(role).collect::<Result<_, _>>().map_err(&wrong)?;
    Ok(User { name: name.to_owned(), roles, login: login(name, proof).map_err(wrong)?, calls: Vec::new() })
}

fn guests(texts: &[String], calls: &[String]) -> Result<Vec<Guest>, Failure> {
    let wrong = |why: String| Failure::usage(format!("--guest {why}")).hint("write NAME:LOGIN");
    let mut guests = Vec::new();
    for text in texts {
        let (name, proof) =
            text.split_once(':').ok_or_else(|| wrong("takes a name and a login".to_owned()))?;
        let login = login(name, proof).map_err(wrong)?;
        guests.push(Guest { name: name.to_owned(), login, calls: Vec::new() });
    }
    for (name, called) in called(calls, "--guest-calls", "GUEST:NAME[,NAME]")? {
        let guest = guests.iter_mut().find(|guest| guest.name == name);
        let none = || Failure::usage(format!("--guest-calls {name}: no --guest has this name"));
        guest.ok_or_else(none)?.calls.extend(called);
    }
    Ok(guests)
}

/// Parses `NAME:OTHER[,OTHER]`: a caller and the agents it may call.
fn called<'a>(texts: &'a [String], option: &str, form: &str) -> Result<Vec<(&'a str, Vec<String>)>, Failure> {
    let read = |text: &'a String| {
        let (name, called) = text.split_once(':').ok_or_else(|| {
            Failure::usage(format!("{option} {text}: expected a name and the names that it may call"))
                .hint(format!("write {form}"))
        })?;
        let called = called.split(',').filter(|called| !called.is_empty()).map(str::to_owned);
        Ok((name, called.collect()))
    };
    texts.iter().map(read).collect()
}

/// Reads a login: a password from the environment, or a public nkey.
fn login(name: &str, proof: &str) -> Result<Login, String> {
    let Some(variable) = proof.strip_prefix("env:") else { return Ok(Login::Nkey(proof.to_owned())) };
    let password = std::env::var(variable).ok().filter(|password| !password.is_empty());
    password.map(Login::Password).ok_or_else(|| format!("{name}: {variable} is not set"))
}
