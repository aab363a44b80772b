//! `sinew gateway key`: API keys of HTTP callers.

use clap::{Args, Subcommand};
use sinew_documents::words;
use sinew_operations::failure::Failure;
use sinew_operations::gateway_keys::{
    KeyRow, MadeKey, NewKey, create_key, find_keys, list_keys, revoke_keys, rotate_key,
};
use sinew_operations::quantity::{parse_byte_count, parse_duration};
use sinew_protocol::access::{AccessRole, KeyLimits, KeyScope};
use sinew_runtime::local;

use crate::cmd::execution::command::confirm;
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

/// Commands for keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    #[command(about = "Create a key; it is shown only once")]
    Create(CreateArgs),
    #[command(about = "List keys, without their secrets")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Replace a key; the old one stays valid for a while")]
    Rotate(RotateArgs),
    #[command(about = "Revoke a key; gateways reject it immediately")]
    Revoke(RevokeArgs),
}

/// Arguments of `sinew gateway key create`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew gateway key create billing --role client --pattern 'orders-*' --expires 90d\n  sinew gateway key create ann --role admin\n  sinew gateway key create crm --certificate-name crm.internal.example.com"
)]
pub(crate) struct CreateArgs {
    /// Name of the owner, recorded as the caller of executions and approvals
    #[arg(value_name = "NAME")]
    name: String,
    /// Role of the key: `operator` reads, `client` also starts, controls and answers, `admin` also deploys
    #[arg(long, value_name = "ROLE", default_value = "client", value_parser = role)]
    role: AccessRole,
    /// Workflows and agents that the key may access; `*` matches any text. May be repeated
    #[arg(long = "pattern", value_name = "PATTERN", default_value = "*")]
    patterns: Vec<String>,
    /// Group of the owner, who may decide questions for it (`allowed: ["group:NAME"]`). May be repeated
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// Executions that the key may access: `own` (of its owner) or `all` [default: own for client, else all]
    #[arg(long, value_name = "own|all", value_parser = scope)]
    scope: Option<KeyScope>,
    /// Time after which the key expires: 90d, 12h [default: never]
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    /// DNS name of the client certificate that authenticates the caller, instead of a secret
    #[arg(long, value_name = "NAME")]
    certificate_name: Option<String>,
    /// Requests per second, with a burst of ten seconds' worth [default: the gateway's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_second: Option<u32>,
    /// Concurrent requests [default: the gateway's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: Option<u32>,
    /// Concurrent event streams [default: the gateway's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    streams: Option<u32>,
    /// Maximum size of a request body: 64KiB, 1MB [default: the gateway's]
    #[arg(long, value_name = "SIZE")]
    max_body: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew gateway key list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew gateway key list\n  sinew gateway key list -o json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew gateway key revoke`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew gateway key revoke k3vbq0a1xz2c\n  sinew gateway key revoke billing"
)]
pub(crate) struct RevokeArgs {
    /// Id of a key, or name of an owner to revoke all of the owner's keys
    #[arg(value_name = "ID|NAME")]
    key: String,
    /// List the keys that would be revoked, without revoking them
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation for several keys
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew gateway key rotate`.
#[derive(Args, Debug)]
#[command(
    long_about = "Create a key with the same owner, role, patterns, scope and limits, and let the old one \
                  expire after a grace period.",
    after_help = "Examples:\n  sinew gateway key rotate billing --grace 1h\n  sinew gateway key rotate k3vbq0a1xz2c --grace 0s"
)]
pub(crate) struct RotateArgs {
    /// Id of a key, or name of an owner with one valid key
    #[arg(value_name = "ID|NAME")]
    key: String,
    /// Time for which the old key stays valid
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    grace: String,
    #[command(flatten)]
    mesh: Connection,
}

fn role(word: &str) -> Result<AccessRole, String> {
    let known = || AccessRole::ALL.map(AccessRole::as_str).join(", ");
    AccessRole::parse(word).ok_or_else(|| format!("use one of {}", known()))
}

fn scope(word: &str) -> Result<KeyScope, String> {
    KeyScope::parse(word).ok_or_else(|| "use own or all".to_owned())
}

/// Runs the command.
pub(super) async fn key(command: KeyCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        KeyCommand::Create(args) => create(args, output).await,
        KeyCommand::List(args) => list(&args, output).await,
        KeyCommand::Rotate(args) => rotate(&args, output).await,
        KeyCommand::Revoke(args) => revoke(&args, output).await,
    }
}

async fn create(args: CreateArgs, output: &Output) -> Result<Exit, Failure> {
    let now = local::now();
    let expires_at =
        args.expires.as_deref().map(parse_duration).transpose()?.map(|time| now.saturating_add(time));
    let limits = KeyLimits {
        requests_per_second: args.requests_per_second,
        in_flight: args.in_flight,
        streams: args.streams,
        body_bytes: args.max_body.as_deref().map(parse_byte_count).transpose()?,
    };
    let new = NewKey {
        name: args.name,
        role: args.role,
        patterns: args.patterns,
        groups: args.groups,
        scope: args.scope,
        expires_at,
        certificate_name: args.certificate_name,
        limits,
    };
    let mesh = args.mesh.open("cli").await?;
    let made = create_key(&mesh, new, now).await?;
    output.value(&made, key_text);
    if made.key.is_some() {
        output.note(SHOWN_ONCE);
    }
    Ok(Exit::Ok)
}

const SHOWN_ONCE: &str = "the key is shown only once; send it as `Authorization: Bearer KEY`";

fn key_text(made: &MadeKey) -> String {
    made.key.clone().unwrap_or_else(|| format!("{}: authenticated by a certificate", made.row.id))
}

async fn rotate(args: &RotateArgs, output: &Output) -> Result<Exit, Failure> {
    let (now, grace_ms) = (local::now(), parse_duration(&args.grace)?);
    let mesh = args.mesh.open("cli").await?;
    let rotated = rotate_key(&mesh, &args.key, grace_ms, now).await?;
    output.value(&rotated, |rotated| key_text(&rotated.made));
    output.note(SHOWN_ONCE);
    let old = &rotated.replaces.id;
    output.note(&match grace_ms {
        0 => format!("the old key {old} is no longer valid"),
        grace => format!("the old key {old} expires in {}", words::duration(grace)),
    });
    Ok(Exit::Ok)
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    let now = local::now();
    let rows = list_keys(&mesh, now).await?;
    output.value(&rows, |rows| table(rows, now));
    Ok(Exit::Ok)
}

async fn revoke(args: &RevokeArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    let now = local::now();
    let found = find_keys(&mesh, &args.key, now).await?;
    if args.dry_run {
        output.value(&found, |rows| table(rows, now));
        return Ok(Exit::Ok);
    }
    if found.len() > 1 && !args.yes {
        output.note_block(&table(&found, now));
        confirm(&format!("revoke {} keys of {}", found.len(), args.key))?;
    }
    let rows = revoke_keys(&mesh, &args.key, now).await?;
    output.value(&rows, |rows| table(rows, now));
    output.note(&format!("revoked {}", words::count(rows.len(), "key")));
    Ok(Exit::Ok)
}

fn table(rows: &[KeyRow], now: u64) -> String {
    if rows.is_empty() {
        return "no keys".to_owned();
    }
    let mut lines = vec![
        ["KEY", "OWNER", "ROLE", "SCOPE", "STATUS", "CREATED", "LAST USED", "EXPIRES", "PATTERNS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    lines.extend(rows.iter().map(|row| {
        let ends = match row.expires_at {
            None => "never".to_owned(),
            Some(end) if end <= now => words::ago(end, now),
            Some(end) => format!("in {}", words::duration(end - now)),
        };
        vec![
            row.id.clone(),
            words::one_line(&row.name, 64),
            row.role.to_owned(),
            row.scope.to_owned(),
            row.status.to_owned(),
            words::ago(row.created_at, now),
            row.last_used_at.map_or_else(|| "never".to_owned(), |at| words::ago(at, now)),
            ends,
            words::one_line(&row.patterns.join(" "), 80),
        ]
    }));
    words::columns(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_keys_are_told_in_fitting_units() {
        let now = 1_000_000;
        for (expires_at, ends) in [
            (None, "never"),
            (Some(now + 1_000), "in 1.0s"),
            (Some(now + 90 * 60_000), "in 1h30m"),
            (Some(now + 90 * 86_400_000), "in 90d00h"),
            (Some(now - 5_000), "5.0s ago"),
        ] {
            let row = KeyRow {
                id: "k".to_owned(),
                name: "ann".to_owned(),
                role: "client",
                groups: Vec::new(),
                patterns: vec!["*".to_owned()],
                scope: "own",
                status: "valid",
                certificate_name: None,
                created_at: 0,
                created_by: "ada".to_owned(),
                expires_at,
                revoked_at: None,
                last_used_at: None,
                limits: KeyLimits::default(),
            };
            let shown = table(&[row], now);
            assert!(shown.lines().nth(1).is_some_and(|line| line.contains(ends)), "{ends}: {shown}");
        }
    }
}
