//! `sinew mesh permissions`: what each role may do, for the server's configuration.

use clap::{Args, ValueEnum};
use serde_json::json;
use sinew_protocol::Token;
use sinew_protocol::permission::{BadTenant, Login, Role, Tenant, User, config, nsc};
use sinew_protocol::subject::DEFAULT_NAMESPACE;

use crate::exit::{Exit, Failure};
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew mesh permissions --role agent --name reviewer
  sinew mesh permissions --format nats --user exec-1:executor:UABC… --user reviewer:agent:env:REVIEWER_PASSWORD
  sinew mesh permissions --format nsc --account SHOP > roles.sh";

/// Arguments of `sinew mesh permissions`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print what each role of a mesh may publish and subscribe to, and what its credentials open beyond \
                  that: as a table, as configuration for nats-server, or as commands for nsc. Needs no server.",
    after_help = EXAMPLES
)]
pub(crate) struct PermissionsArgs {
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Form::Table)]
    format: Form,
    /// Only this role
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Option<Role>,
    /// The user's name in subjects; an agent's is the agent's
    #[arg(long, value_name = "NAME", default_value = "NAME")]
    name: String,
    /// The mesh
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// The account
    #[arg(long, value_name = "NAME", default_value = "SINEW")]
    account: String,
    /// A user for nats-server's configuration; LOGIN is a public nkey (U…) or env:VARIABLE for a password. May be repeated
    #[arg(long = "user", value_name = "NAME:ROLE[,ROLE]:LOGIN")]
    users: Vec<String>,
}

/// Forms of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people, or as data with -o
    Table,
    /// An `accounts` block for nats-server
    Nats,
    /// A script of nsc commands
    Nsc,
}

/// Prints permissions.
pub(super) fn permissions(args: &PermissionsArgs, output: &Output) -> Result<Exit, Failure> {
    if args.format != Form::Table && output.is_machine() {
        return Err(Failure::usage("-o prints the table as data, without --format"));
    }
    if args.format != Form::Nats && !args.users.is_empty() {
        return Err(Failure::usage("--user is for --format nats"));
    }
    match args.format {
        Form::Table => table(args, output),
        Form::Nats => {
            if args.users.is_empty() {
                return Err(Failure::usage("--format nats needs users").hint("add --user NAME:ROLE:LOGIN"));
            }
            let users = args.users.iter().map(|text| user(text)).collect::<Result<_, _>>()?;
            let tenant = Tenant {
                account: args.account.clone(),
                namespace: args.namespace.clone(),
                users,
                max_file: None,
            };
            output.text(&config(&[tenant])?);
        }
        Form::Nsc => output.text(&nsc(&args.account, &args.namespace)?),
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
                format!("{role}\n  publish\n{publish}  subscribe\n{subscribe}  opens beyond it: {opens}")
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
    let (Some(name), Some(roles), Some(login)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong("takes a name, roles and a login".to_owned()));
    };
    let roles = roles.split(',').map(role).collect::<Result<_, _>>().map_err(&wrong)?;
    let login = match login.strip_prefix("env:") {
        Some(variable) => {
            let password = std::env::var(variable).ok().filter(|password| !password.is_empty());
            Login::Password(password.ok_or_else(|| wrong(format!("{name}: {variable} is not set")))?)
        }
        None => Login::Nkey(login.to_owned()),
    };
    Ok(User { name: name.to_owned(), roles, login })
}

impl From<BadTenant> for Failure {
    fn from(bad: BadTenant) -> Self {
        Self::new(Exit::Usage, crate::exit::known(BadTenant::CODE), bad.to_string())
    }
}
