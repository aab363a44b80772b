//! `sinew tool`: workflows of a mesh as tools for language models.

mod marks;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sinew_documents::catalogue::{CatalogueEntry, CataloguePage};
use sinew_documents::words;
use sinew_inspection::execution_status::{end_word, status_of};
use sinew_inspection::tree::TreeOptions;
use sinew_operations::catalogue::{CATALOGUE_PAGE, CatalogueIndex, CatalogueKind, CatalogueQuery};
use sinew_operations::catalogue_records::CatalogueRecords;
use sinew_operations::deployed_workflows::{ToolRow, find_tool};
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_operations::tool_input::start_of_call;
use sinew_protocol::code;
use sinew_protocol::query::ExecutionStatus;

use crate::cmd::execution::retry::wait_until_known;
use crate::cmd::execution::watch::{Follow, follow};
use marks::Mark;

use crate::connect::{Connection, block};
use crate::deadline::Deadline;
use crate::entry_filter_args::EntryFilterArgs;
use crate::exit::Exit;
use crate::input;
use crate::output::Output;

/// Commands for tools.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    #[command(about = "List the workflows that a model can call")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Find agents and workflows by what they do")]
    Search(SearchArgs),
    #[command(about = "Include an agent or workflow in every short list of tools and skills")]
    Pin(marks::MarkArgs),
    #[command(about = "Stop including an agent or workflow in every short list")]
    Unpin(marks::MarkArgs),
    #[command(about = "Hide an agent or workflow from lists and searches; calls are not affected")]
    Hide(marks::MarkArgs),
    #[command(about = "Show a hidden agent or workflow again")]
    Unhide(marks::MarkArgs),
    #[command(about = "Mark an agent or workflow as deprecated for everybody")]
    Deprecate(marks::DeprecateArgs),
    #[command(about = "Return to the stage that the author of an agent or workflow set")]
    Undeprecate(marks::MarkArgs),
    #[command(about = "Print declarations for a model's API")]
    Declare(DeclareArgs),
    #[command(about = "Call a tool as a model does, and print its answer")]
    Call(CallArgs),
}

/// Arguments of `sinew tool list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew tool list\n  sinew tool list -o name")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew tool search`.
#[derive(Args, Debug)]
#[command(
    long_about = "Find the agents and workflows that are online by what they do, best first.\n\n\
                  The search reads names, examples, tags, descriptions and parameters. SCORE is the share of the \
                  query that an entry covers. Without words, all entries are listed by name.",
    after_help = "Examples:\n  sinew tool search refund an order\n  sinew tool search --stage deprecated\n  sinew tool search ship --kind workflow --label team=a -o json"
)]
pub(crate) struct SearchArgs {
    /// What you want to do, in any words
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// Only agents, or only workflows
    #[arg(long, value_enum)]
    kind: Option<SearchedKind>,
    #[command(flatten)]
    filter: EntryFilterArgs,
    /// Maximum number of entries, at most 100
    #[arg(long, value_name = "N", default_value_t = CATALOGUE_PAGE)]
    limit: usize,
    /// Include entries that administrators hide
    #[arg(long)]
    hidden: bool,
    /// Show which words were found in which part of an entry
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Kind of entry to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SearchedKind {
    /// Agents that process tasks themselves
    Agent,
    /// Workflows
    Workflow,
}

/// Arguments of `sinew tool declare`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print function declarations of workflows, as an array in the format of a model's API.",
    after_help = "Examples:\n  sinew tool declare --for anthropic > tools.json\n  sinew tool declare orders --for mcp"
)]
pub(crate) struct DeclareArgs {
    /// Only these tools or workflows [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// API whose format to use
    #[arg(long = "for", value_enum, default_value_t = ToolApi::Openai)]
    api: ToolApi,
    #[command(flatten)]
    mesh: Connection,
}

/// API that a declaration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ToolApi {
    /// OpenAI's function tools
    Openai,
    /// Anthropic's tools
    Anthropic,
    /// The Model Context Protocol
    Mcp,
    /// The published specification
    Spec,
}

/// Arguments of `sinew tool call`.
#[derive(Args, Debug)]
#[command(
    long_about = "Call a workflow as a model does: check the arguments against the declaration, start an \
                  execution, and print its answer.\n\n\
                  Exits with 8 once the execution waits only for a person.",
    after_help = "Examples:\n  sinew tool call orders -p order_id=A1\n  sinew tool call workflow_orders -i @order.json --timeout 5m\n  sinew tool call orders -p input_artifact=artifact://…"
)]
pub(crate) struct CallArgs {
    /// Name of the tool or workflow
    #[arg(value_name = "NAME")]
    name: String,
    /// The arguments: JSON, @FILE or - for stdin
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// One argument. May be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Stop waiting after this time from the start of the command; the execution continues
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(crate) fn tool(command: ToolCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        match command {
            ToolCommand::List(args) => list(&args, output).await,
            ToolCommand::Search(args) => search(&args, output).await,
            ToolCommand::Pin(args) => marks::mark(&args, Mark::Pin, output).await,
            ToolCommand::Unpin(args) => marks::mark(&args, Mark::Unpin, output).await,
            ToolCommand::Hide(args) => marks::mark(&args, Mark::Hide, output).await,
            ToolCommand::Unhide(args) => marks::mark(&args, Mark::Unhide, output).await,
            ToolCommand::Deprecate(args) => marks::deprecate(&args, output).await,
            ToolCommand::Undeprecate(args) => marks::mark(&args, Mark::Undeprecate, output).await,
            ToolCommand::Declare(args) => declare(&args, output).await,
            ToolCommand::Call(args) => call(&args, output).await,
        }
    })
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let tools = remote.tools().await?;
    let rows: Vec<ToolRow> = tools.values().map(ToolRow::of).collect();
    output.value(&rows, |_| {
        if tools.is_empty() {
            return "no workflow is deployed".to_owned();
        }
        let mut lines = vec![["TOOL", "WORKFLOW", "PARAMETERS", "DESCRIPTION"].map(str::to_owned).to_vec()];
        lines.extend(tools.values().map(|tool| {
            let properties = tool.input_schema.get("properties").and_then(Value::as_object);
            let names: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            vec![
                tool.declaration().short_name(),
                words::one_line(&tool.workflow, 40),
                words::one_line(&names.join(", "), 40),
                words::one_line(&tool.description, 80),
            ]
        }));
        words::columns(&lines)
    });
    Ok(Exit::Ok)
}

async fn search(args: &SearchArgs, output: &Output) -> Result<Exit, Failure> {
    let query = CatalogueQuery {
        kind: args.kind.map(|kind| match kind {
            SearchedKind::Agent => CatalogueKind::Agent,
            SearchedKind::Workflow => CatalogueKind::Workflow,
        }),
        hidden: args.hidden,
        limit: Some(args.limit),
        ..args.filter.query(Some(args.words.join(" ")))
    };
    let operator = args.mesh.operator().await?;
    let all = operator.online().await?.list();
    let records = CatalogueRecords::open(operator.mesh()).await.set();
    let page = CatalogueIndex::default().find((&all, &records), &query, |_| true);
    for (word, instead) in &page.corrections {
        output.note(&format!("no entry contains {word:?}: searched for {instead:?}"));
    }
    output.value(&page, |page| shown_page(page, args.explain));
    if page.entries.len() < page.total {
        output.note(&format!("{} of {} entries; more with --limit", page.entries.len(), page.total));
    }
    Ok(Exit::Ok)
}

/// Returns the entries of a page as a table.
fn shown_page(page: &CataloguePage, explains: bool) -> String {
    if page.entries.is_empty() {
        return "no entry found".to_owned();
    }
    let is_search = page.entries.iter().any(|entry| entry.found.is_some());
    let mut header = vec!["NAME", "KIND", "STAGE", "MAINTAINER", "DESCRIPTION"];
    if is_search {
        header.insert(0, "SCORE");
    }
    if explains {
        header.push("MATCHED");
    }
    let mut lines = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for entry in &page.entries {
        let mut line = vec![
            words::one_line(&entry.name, 40),
            entry.kind.word().to_owned(),
            entry.stage.name().to_owned(),
            words::one_line(entry.maintainer.as_deref().unwrap_or("-"), 24),
            words::one_line(&description_of(entry), 80),
        ];
        let found = entry.found.as_ref();
        if is_search {
            line.insert(0, found.map_or_else(|| "-".to_owned(), |found| found.score.to_string()));
        }
        if explains {
            let matched = found.map_or(&[][..], |found| &found.words);
            let shown: Vec<String> =
                matched.iter().map(|one| format!("{} {}", one.field, one.word)).collect();
            line.push(words::one_line(&shown.join(", "), 80));
        }
        lines.push(line);
    }
    words::columns(&lines)
}

/// Returns the description of an entry, after what a reader must know before a call.
fn description_of(entry: &CatalogueEntry) -> String {
    let mut notes = Vec::new();
    notes.extend(entry.replaced_by.as_ref().map(|name| format!("use {name} instead")));
    notes.extend(entry.pinned.then(|| "pinned".to_owned()));
    notes.extend(entry.hidden.then(|| "hidden".to_owned()));
    notes.extend(entry.resembles.as_ref().map(|name| format!("looks like {name}")));
    if notes.is_empty() {
        return entry.description.clone();
    }
    format!("({}) {}", notes.join("; "), entry.description)
}

async fn declare(args: &DeclareArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let tools = remote.tools().await?;
    let wanted = match args.names.as_slice() {
        [] => tools.values().collect(),
        names => names.iter().map(|name| find_tool(&tools, name)).collect::<Result<Vec<_>, _>>()?,
    };
    let declared: Vec<Value> = wanted
        .into_iter()
        .map(|tool| {
            let declaration = tool.declaration();
            match args.api {
                ToolApi::Openai => declaration.openai(),
                ToolApi::Anthropic => declaration.anthropic(),
                ToolApi::Mcp => declaration.mcp(),
                ToolApi::Spec => declaration.spec(),
            }
        })
        .collect();
    output.value(&declared, |declared| serde_json::to_string_pretty(declared).unwrap_or_default());
    Ok(Exit::Ok)
}

async fn call(args: &CallArgs, output: &Output) -> Result<Exit, Failure> {
    let Value::Object(arguments) = input::read(args.input.as_deref(), &args.params)? else {
        return Err(Failure::usage("the arguments of a tool must be a JSON object"));
    };
    let deadline = Deadline::from_flag(args.timeout.as_deref())?;
    let ready = deadline.within("connecting and reading the tools", async {
        let remote = args.mesh.operator().await?;
        let tools = remote.tools().await?;
        let tool = find_tool(&tools, &args.name)?;
        let request = start_of_call(tool, &arguments)?;
        Ok((remote, tool.workflow.clone(), request))
    });
    let (remote, workflow, request) = ready.await?;
    let start = remote.prepare_start(request).await?;
    let id = start.execution().clone();
    deadline.within(&format!("storing the start of execution {id}"), remote.start(start)).await?;
    output.note(&format!("execution {id}"));
    let followed = async {
        wait_until_known(&remote, &id, &workflow, output).await?;
        let record = remote.record(&id).await?;
        let changes = ExecutionChanges::of(FoundExecution { record, remote: Some(remote.clone()) }).await?;
        let how = Follow { options: TreeOptions::default(), deadline, people: false, show: false };
        follow(changes, &how, output).await
    };
    let Ok(followed) = deadline.bound(followed).await else {
        output.note(&format!("--timeout ran out; the execution continues: sinew execution watch {id}"));
        return Ok(Exit::TimedOut);
    };
    let record = followed?;
    let status = status_of(record.execution.state());
    if status == ExecutionStatus::Waiting {
        return Err(Failure::new(
            FailureKind::Waiting,
            code::CALL_WAITS_FOR_PERSON.as_str(),
            format!("execution {id} waits for a person"),
        )
        .hint(format!(
            "sinew approval show {id}; after the decision, get the answer with: sinew execution result {id}"
        )));
    }
    let Some(outcome) = record.execution.state().outcome.clone().filter(|_| status.is_terminal()) else {
        output.note(&format!("--timeout ran out; the execution continues: sinew execution watch {id}"));
        return Ok(Exit::TimedOut);
    };
    let answered = outcome.output.as_deref().cloned().unwrap_or_default();
    let document = json!({
        "execution": id.as_str(),
        "status": end_word(outcome.status),
        "output": answered,
        "error": outcome.fault,
    });
    if output.is_machine() {
        output.value(&document, |_| String::new());
    } else if outcome.status == sinew_engine::TerminalStatus::Success {
        match &answered {
            Value::String(text) => output.text(text),
            value => output.text(&serde_json::to_string_pretty(value).unwrap_or_default()),
        }
    }
    match outcome.fault {
        Some(fault) if !output.is_machine() => {
            Err(Failure::new(FailureKind::Failed, known(&fault.code), words::plain(&fault.message))
                .hint(format!("sinew execution describe {id}")))
        }
        None if outcome.status == sinew_engine::TerminalStatus::Success => Ok(Exit::Ok),
        _ => Ok(Exit::Failed),
    }
}
