//! `sinew doctor`: one check after the other, each with what to do about it.

use clap::Args;
use sinew_inspection::words;
use sinew_operations::doctor::{CheckState, DoctorCheck, examine};
use sinew_operations::failure::Failure;
use sinew_protocol::permission::Role;

use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew doctor`.
#[derive(Args, Debug)]
#[command(
    long_about = "Look at a mesh from end to end: server, streams, executors, agents, what was set aside. Exits with 1 \
                  if something is wrong; warnings alone do not. The rights of the credentials are compared with the \
                  table of roles: what is missing is wrong, what is too wide is a warning.",
    after_help = "Examples:\n  sinew doctor\n  sinew doctor --fix\n  sinew doctor --role agent --user greeter\n  sinew doctor -o json | jq '.[] | select(.state != \"ok\")'"
)]
pub(crate) struct DoctorArgs {
    /// Set right what provisioning can set right
    #[arg(long)]
    fix: bool,
    /// Role of these credentials [default: the closest roles]
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',', value_parser = role)]
    roles: Vec<Role>,
    #[command(flatten)]
    mesh: Connection,
}

/// Does what the command line says.
pub(crate) fn doctor(args: &DoctorArgs, output: &Output) -> Result<Exit, Failure> {
    let checks = block(async { Ok(examine(args.mesh.open("doctor").await, &args.roles, args.fix).await) })?;
    output.value(&checks, |checks| {
        let line = |check: &DoctorCheck| {
            let (word, color) = match check.state {
                CheckState::Ok => ("ok  ", "\u{1b}[32m"),
                CheckState::Warn => ("warn", "\u{1b}[33m"),
                CheckState::Fail => ("fail", "\u{1b}[31m"),
            };
            let (on, off) = if output.color { (color, "\u{1b}[0m") } else { ("", "") };
            let code = check.code.map(|code| format!(" [{code}]")).unwrap_or_default();
            let hint = check.hint.as_ref().map(|hint| format!("\n      hint: {hint}")).unwrap_or_default();
            format!("{on}{word}{off}  {:<12} {}{code}{hint}", check.what, words::plain(&check.message))
        };
        checks.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let failed = checks.iter().any(|check| check.state == CheckState::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn role(word: &str) -> Result<Role, String> {
    Role::parse(word).ok_or_else(|| format!("use one of {}", Role::ALL.map(Role::as_str).join(", ")))
}
