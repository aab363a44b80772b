//! `sinew doctor`: health checks, each with a remedy.

use std::time::Duration;

use clap::Args;
use sinew_documents::mesh::{CheckState, DoctorCheck};
use sinew_documents::words;
use sinew_operations::doctor::{DoctorOptions, MAX_APPROVAL_AGE, examine};
use sinew_operations::failure::Failure;
use sinew_operations::quantity::parse_duration;
use sinew_protocol::permission::Role;

use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew doctor`.
#[derive(Args, Debug)]
#[command(
    long_about = "Run end-to-end health checks on a mesh: server, streams, executors, agents, approvals, \
                  quarantine. Exits with 1 if a check fails, for example for an unreachable executor, an \
                  offline agent with pending work, or an overdue approval; with --strict also on warnings. \
                  The permissions of the credentials are compared with those of their roles: a missing \
                  permission fails, an excess permission is a warning.",
    after_help = "Examples:\n  sinew doctor\n  sinew doctor --strict\n  sinew doctor --fix\n  sinew doctor --role agent --user greeter\n  sinew doctor -o json | jq '.[] | select(.state != \"ok\")'"
)]
pub(crate) struct DoctorArgs {
    /// Fix what provisioning can fix
    #[arg(long)]
    fix: bool,
    /// Exit with 1 on warnings too
    #[arg(long)]
    strict: bool,
    /// Age at which a pending approval counts as a failure [default: 24h]
    #[arg(long, value_name = "DURATION")]
    max_approval_age: Option<String>,
    /// Role of these credentials [default: the closest roles]
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',', value_parser = role)]
    roles: Vec<Role>,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(crate) fn doctor(args: &DoctorArgs, output: &Output) -> Result<Exit, Failure> {
    let age = args.max_approval_age.as_deref().map(parse_duration).transpose()?;
    let options = DoctorOptions {
        roles: args.roles.clone(),
        fix: args.fix,
        max_approval_age: age.map_or(MAX_APPROVAL_AGE, Duration::from_millis),
    };
    let checks = block(async { Ok(examine(args.mesh.open("doctor").await, &options).await) })?;
    output.value(&checks, |checks| {
        let line = |check: &DoctorCheck| {
            let (word, color) = match check.state {
                CheckState::Ok => ("ok  ", "\u{1b}[32m"),
                CheckState::Warn => ("warn", "\u{1b}[33m"),
                CheckState::Fail => ("fail", "\u{1b}[31m"),
            };
            let (on, off) = if output.color { (color, "\u{1b}[0m") } else { ("", "") };
            let code = check.code.as_ref().map(|code| format!(" [{code}]")).unwrap_or_default();
            let hint = check.hint.as_ref().map(|hint| format!("\n      hint: {hint}")).unwrap_or_default();
            format!("{on}{word}{off}  {:<12} {}{code}{hint}", check.what, words::plain(&check.message))
        };
        checks.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let failed = checks.iter().any(|check| match check.state {
        CheckState::Ok => false,
        CheckState::Warn => args.strict,
        CheckState::Fail => true,
    });
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn role(word: &str) -> Result<Role, String> {
    Role::parse(word).ok_or_else(|| format!("use one of {}", Role::ALL.map(Role::as_str).join(", ")))
}
