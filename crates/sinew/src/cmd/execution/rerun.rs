//! `sinew execution rerun`: a new execution with the input of an old one.

use clap::Args;
use serde_json::{Value, json};
use sinew_engine::{ActivationEnd, ExecutionMode, ROOT, SharedJson};
use sinew_plan::{NodeIndex, NodeOperation, Plan};

use super::Which;
use super::launch::{LaunchArgs, NewExecution, behind, launch, nodes, outputs};
use crate::cmd::run::input;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// The label of a new execution that names the old one.
const RERUN_OF: &str = "rerun_of";

const RERUN_EXAMPLES: &str = "Examples:
  sinew execution rerun @latest
  sinew execution rerun x7f3 --latest --watch    # with the newest version of the workflow
  sinew execution rerun x7f3 --memoize           # nodes that ended well are not run again
  sinew execution rerun x7f3 --from enrich -p limit=5";

/// Arguments of `sinew execution rerun`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start a new execution with the input of an old one. The label `rerun_of` of the new one names it.",
    after_help = RERUN_EXAMPLES
)]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    which: Which,
    /// Another input: JSON, @FILE or - for stdin
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Change one field of the input. May be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Take outputs of agents, maps and loops that ended well as given; not of --from and what depends on it
    #[arg(long)]
    memoize: bool,
    /// Start at this node. May be repeated
    #[arg(long, value_name = "NODE")]
    from: Vec<String>,
    /// With the newest deployed version of the workflow, instead of the same
    #[arg(long)]
    latest: bool,
    #[command(flatten)]
    how: LaunchArgs,
}

/// Starts an execution like another.
pub(super) async fn rerun(args: &RerunArgs, output: &Output) -> Result<Exit, Failure> {
    let (remote, id) = args.which.find().await?;
    let record = remote.record(&id).await?;
    let old = record.execution.ctx().input().to_string();
    let given = args.input.clone().unwrap_or(old);
    let begun = nodes(record.plan(), &args.from)?;
    let mut mode = ExecutionMode { from: args.from.clone(), ..ExecutionMode::default() };
    if args.memoize {
        mode.given = outputs(&record, &behind(record.plan(), &begun))?;
    }
    let new =
        New { label: RERUN_OF, input: input::read(Some(&given), &args.params)?, mode, latest: args.latest };
    start(&remote, &record, new, &args.how, output).await
}

/// Starts an execution that leaves the way of another.
pub(super) async fn fork(args: &ForkArgs, output: &Output) -> Result<Exit, Failure> {
    let set = args.set.iter().map(|text| given(text)).collect::<Result<Vec<_>, _>>()?;
    let (remote, id) = args.which.find().await?;
    let record = remote.record(&id).await?;
    let plan = record.plan();
    let named: Vec<String> = set.iter().map(|(node, _)| node.clone()).collect();
    let (at, named) = (nodes(plan, &args.at)?, nodes(plan, &named)?);
    let again = if at.is_empty() { behind(plan, &named) } else { behind(plan, &at) };
    if let Some(ix) = named.iter().find(|ix| !is_work(plan, **ix)) {
        let id = &plan.node(*ix).id;
        let why =
            format!("where the execution goes behind node '{id}' is not in its output, so it cannot be set");
        return Err(Failure::new(Exit::Conflict, NOT_GIVEN, why).hint("set the output that it looks at"));
    }
    let mut mode = ExecutionMode { given: outputs(&record, &again)?, ..ExecutionMode::default() };
    mode.given.extend(set);
    let input = Value::clone(record.execution.ctx().input());
    let new = New { label: FORK_OF, input, mode, latest: false };
    start(&remote, &record, new, &args.how, output).await
}

/// The execution to be.
struct New {
    label: &'static str,
    input: Value,
    mode: ExecutionMode,
    /// With the newest version of the workflow.
    latest: bool,
}

async fn start(
    remote: &Remote,
    record: &Record,
    new: New,
    how: &How,
    output: &Output,
) -> Result<Exit, Failure> {
    let workflow = record.plan().name.clone();
    let version = (!new.latest).then(|| record.execution.program().graph.digest().to_owned());
    let shown = version.as_deref().map_or("the newest version", words::short).to_owned();
    if how.dry_run {
        let given: Vec<&String> = new.mode.given.keys().collect();
        let told = json!({
            "would_start": workflow,
            "version": version,
            "input": new.input,
            "given": given,
            "from": new.mode.from,
        });
        output.value(&told, |_| {
            let mut text = format!("would start {workflow} ({shown}) with {}", new.input);
            for (what, nodes) in [("given", given), ("from", new.mode.from.iter().collect())] {
                if !nodes.is_empty() {
                    let nodes: Vec<&str> = nodes.into_iter().map(String::as_str).collect();
                    text = format!("{text}\n  {what:<5}  {}", nodes.join(", "));
                }
            }
            text
        });
        return Ok(Exit::Ok);
    }
    let key = uuid::Uuid::now_v7().to_string();
    let mut command = remote.client.start_command(key, workflow.clone(), new.input);
    let id = command.execution.clone();
    command.version = version;
    command.labels.clone_from(&record.about.labels);
    command.labels.insert(new.label.into(), record.id().to_owned());
    command.user.clone_from(&record.about.user);
    if new.mode != ExecutionMode::default() {
        command.mode = serde_json::to_value(&new.mode).unwrap_or_default();
    }
    output.note(&format!("starting {workflow} ({shown})"));
    remote.client.start(command).await?;
    if how.watch {
        wait_until_known(remote, &id, &workflow).await?;
        return watched(remote, &id, output).await;
    }
    let mut told = json!({ "execution": id.as_str(), "workflow": workflow });
    told[new.label] = json!(record.id());
    output.value(&told, |_| id.to_string());
    Ok(Exit::Ok)
}

/// `NODE.output=VALUE`, as a node and what it is said to have given.
fn given(text: &str) -> Result<(String, SharedJson), Failure> {
    let wrong = || Failure::usage(format!("--set takes NODE.output=VALUE, not '{text}'"));
    let (node, value) = text.split_once('=').ok_or_else(wrong)?;
    let node = node.strip_suffix(".output").filter(|node| !node.is_empty()).ok_or_else(wrong)?;
    let value = match value.strip_prefix('@') {
        Some(_) => input::read(Some(value), &[])?,
        None => input::json_or_text(value),
    };
    Ok((node.to_owned(), Arc::new(value)))
}

/// Nodes of the workflow itself, by name. What a map or a loop runs begins and ends with it.
fn nodes(plan: &Plan, names: &[String]) -> Result<Vec<NodeIndex>, Failure> {
    let find = |name: &String| {
        let found = plan.find(name).filter(|ix| !plan.node(*ix).inner);
        found.ok_or_else(|| {
            let inner = plan.find(name).is_some();
            let why = if inner { "is run by another node: name that one" } else { "is not in it" };
            Failure::new(Exit::NotFound, NO_SUCH_NODE, format!("node '{name}' {why}"))
                .hint("`sinew execution tree ID` shows its nodes")
        })
    };
    names.iter().map(find).collect()
}

/// These nodes and all that depend on them.
fn behind(plan: &Plan, begun: &[NodeIndex]) -> BTreeSet<NodeIndex> {
    let mut found = BTreeSet::new();
    let mut left = begun.to_vec();
    while let Some(ix) = left.pop() {
        if found.insert(ix) {
            left.extend(plan.edges.iter().filter(|edge| edge.from == ix).map(|edge| edge.to));
        }
    }
    found
}

/// Outputs of the nodes of the workflow itself that ended well, except these.
///
/// What a node computes is computed again, and people are asked again: where their tokens went is not in a value.
fn outputs(record: &Record, except: &BTreeSet<NodeIndex>) -> Result<BTreeMap<String, SharedJson>, Failure> {
    let state = record.execution.state();
    let plan = record.plan();
    let mut kept = BTreeMap::new();
    let mut at_ports = Vec::new();
    for ix in (0..plan.nodes.len() as NodeIndex).filter(|ix| !except.contains(ix) && is_work(plan, *ix)) {
        let one = state.last(ROOT, ix).map(|act| state.act(act));
        let Some(output) =
            one.filter(|one| one.end == Some(ActivationEnd::Succeeded)).and_then(|one| one.output.as_ref())
        else {
            continue;
        };
        let id = plan.node(ix).id.clone();
        if output.ports.is_empty() {
            kept.insert(id, Arc::clone(&output.value));
        } else {
            at_ports.push(id);
        }
    }
    if at_ports.is_empty() {
        return Ok(kept);
    }
    let why = format!(
        "outputs of {} cannot be given to another execution: in dialect {} they lie at ports",
        at_ports.join(", "),
        plan.dialect
    );
    Err(Failure::new(Exit::Conflict, NOT_GIVEN, why).hint("`sinew execution rerun ID` runs all of it again"))
}

/// True if others work for the node; what it computes itself, and what people say, decides where tokens go.
fn is_work(plan: &Plan, ix: NodeIndex) -> bool {
    matches!(
        plan.node(ix).op,
        NodeOperation::Agent
            | NodeOperation::Workflow
            | NodeOperation::Map { .. }
            | NodeOperation::Loop { .. }
            | NodeOperation::Fork { .. }
    )
}
