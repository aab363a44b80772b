//! `sinew gateway hook`: webhook requests of external services that start executions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sinew_documents::words;
use sinew_operations::failure::Failure;
use sinew_operations::gateway_hooks::{HookRow, deploy_hook, list_hooks, read_secret, remove_hook};
use sinew_protocol::Token;
use sinew_protocol::webhook::{WebhookScheme, WebhookTrigger};
use sinew_runtime::local;

use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

/// Commands for webhook triggers.
#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    #[command(about = "Deploy a trigger: signed requests to /hooks/NAME start a workflow")]
    Deploy(DeployArgs),
    #[command(about = "List triggers, without their secrets")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Remove a trigger")]
    Remove(RemoveArgs),
}

/// Arguments of `sinew gateway hook deploy`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew gateway hook deploy pushes --workflow review --scheme github --secret-env GITHUB_SECRET\n  sinew gateway hook deploy payments --workflow intake --scheme stripe --secret-file stripe.secret --input order=/data/object/id"
)]
pub(crate) struct DeployArgs {
    /// Name of the trigger in its path: letters, digits, underscores and hyphens
    #[arg(value_name = "NAME", value_parser = name)]
    name: Token,
    /// Workflow to start
    #[arg(long, value_name = "WORKFLOW")]
    workflow: String,
    /// Signature scheme of the service: `github` or `stripe`
    #[arg(long, value_name = "SCHEME", value_parser = scheme)]
    scheme: WebhookScheme,
    /// Environment variable with the secret of the service
    #[arg(
        long,
        value_name = "VARIABLE",
        required_unless_present = "secret_file",
        conflicts_with = "secret_file"
    )]
    secret_env: Option<String>,
    /// File with the secret of the service
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Input member and the pointer to its value in the body. May be repeated [default: the body is the input]
    #[arg(long = "input", value_name = "MEMBER=/POINTER", value_parser = member)]
    input: Vec<(String, String)>,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew gateway hook list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew gateway hook list\n  sinew gateway hook list -o json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew gateway hook remove`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew gateway hook remove pushes")]
pub(crate) struct RemoveArgs {
    /// Name of the trigger
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    mesh: Connection,
}

fn name(text: &str) -> Result<Token, String> {
    Token::parse(text).map_err(|error| error.to_string())
}

fn scheme(word: &str) -> Result<WebhookScheme, String> {
    let known = || WebhookScheme::ALL.map(WebhookScheme::as_str).join(", ");
    WebhookScheme::parse(word).ok_or_else(|| format!("use one of {}", known()))
}

fn member(text: &str) -> Result<(String, String), String> {
    let (name, pointer) = text.split_once('=').ok_or("expected MEMBER=/POINTER")?;
    Ok((name.to_owned(), pointer.to_owned()))
}

/// Runs the command.
pub(super) async fn hook(command: HookCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        HookCommand::Deploy(args) => deploy(args, output).await,
        HookCommand::List(args) => list(&args, output).await,
        HookCommand::Remove(args) => remove(&args, output).await,
    }
}

impl DeployArgs {
    fn secret(&self) -> Result<String, Failure> {
        let text = match (&self.secret_env, &self.secret_file) {
            (Some(variable), _) => std::env::var(variable)
                .map_err(|_| Failure::usage(format!("the variable {variable} is not set, or not text")))?,
            (None, Some(path)) => read_secret(path)?,
            (None, None) => return Err(Failure::usage("--secret-env or --secret-file is needed")),
        };
        Ok(text.trim().to_owned())
    }
}

async fn deploy(args: DeployArgs, output: &Output) -> Result<Exit, Failure> {
    let secret = args.secret()?;
    let mesh = args.mesh.open("cli").await?;
    let trigger = WebhookTrigger {
        name: args.name,
        workflow: args.workflow,
        scheme: args.scheme,
        secret,
        input: args.input.into_iter().collect::<BTreeMap<_, _>>(),
        created_at: local::now(),
        created_by: mesh.caller().to_string(),
    };
    let row = deploy_hook(&mesh, trigger).await?;
    output.value(&row, |row| format!("deployed: {} starts {}", row.path, words::one_line(&row.workflow, 80)));
    Ok(Exit::Ok)
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    let rows = list_hooks(&mesh).await?;
    let now = local::now();
    output.value(&rows, |rows| table(rows, now));
    Ok(Exit::Ok)
}

async fn remove(args: &RemoveArgs, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    let row = remove_hook(&mesh, &args.name).await?;
    output.value(&row, |row| format!("removed: {}", row.path));
    Ok(Exit::Ok)
}

fn table(rows: &[HookRow], now: u64) -> String {
    if rows.is_empty() {
        return "no webhook triggers".to_owned();
    }
    let mut lines = vec![["PATH", "WORKFLOW", "SIGNED", "DEPLOYED", "BY"].map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        vec![
            row.path.clone(),
            words::one_line(&row.workflow, 60),
            row.scheme.to_owned(),
            words::ago(row.created_at, now),
            words::one_line(&row.created_by, 40),
        ]
    }));
    words::columns(&lines)
}
