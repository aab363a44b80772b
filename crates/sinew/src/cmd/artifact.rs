//! `sinew artifact`: artifacts of executions, by name and version.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use similar::TextDiff;
use sinew_documents::artifact::ArtifactRow;
use sinew_documents::words;
use sinew_mesh::artifact::{ArtifactOwner, LARGEST_OBJECT};
use sinew_operations::execution_artifacts::{LeftArtifact, artifacts, fetch, find_artifact, read_artifact};
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_operations::workflow_file;
use sinew_protocol::code;
use sinew_protocol::task::Content;
use sinew_protocol::{ActivationKey, ArtifactName, TaskId};

use crate::cmd::execution::Which;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;

/// Commands for artifacts.
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    #[command(about = "List the artifacts of an execution")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Fetch an artifact")]
    Get(GetArgs),
    #[command(about = "Store a file on the mesh, as the input of a new execution")]
    Put(PutArgs),
    #[command(about = "Compare two artifacts")]
    Diff(DiffArgs),
}

/// Arguments of `sinew artifact list`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew artifact list @latest\n  sinew artifact list @latest --node report -o json"
)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// Only artifacts of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Also show values that the mesh stored itself: outputs of nodes and inputs of calls
    #[arg(long)]
    all: bool,
}

/// Arguments of `sinew artifact get`.
#[derive(Args, Debug)]
#[command(
    long_about = "Fetch an artifact of an execution. Its bytes are verified against the digest in the \
                  execution's record.\n\n\
                  Name it NAME, NAME:v2 for a version, or NODE/NAME for an artifact of this node; if several \
                  match, the newest is fetched. Inputs and outputs that events name (`wi_orders.json`, \
                  `map_all_results.json`) are read from the record.",
    after_help = "Examples:\n  sinew artifact get @latest report.md\n  sinew artifact get x7f3 enrich_3/table.csv -O table.csv"
)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    which: Which,
    /// Artifact to fetch
    #[arg(value_name = "[NODE/]NAME[:vN]")]
    name: String,
    /// Write to this file instead of stdout
    #[arg(short = 'O', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Arguments of `sinew artifact put`.
#[derive(Args, Debug)]
#[command(
    long_about = "Store a file on the mesh and print its address. `sinew run NAME --input-artifact ADDRESS` \
                  uses it as input, whatever its size.",
    after_help = "Examples:\n  sinew run orders --mesh --input-artifact \"$(sinew artifact put orders.json)\""
)]
pub(crate) struct PutArgs {
    /// The file (`-` for stdin)
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Name of the artifact [default: the file's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Media type of the artifact [default: from the extension of its name]
    #[arg(long, value_name = "TYPE")]
    media_type: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew artifact diff`.
#[derive(Args, Debug)]
#[command(
    long_about = "Compare two artifacts of an execution, or an artifact of two executions. Text and JSON are \
                  compared line by line, other content by size and digest. Exits with 1 if they differ.",
    after_help = "Examples:\n  sinew artifact diff @latest draft_iter_0/text.md draft_iter_1/text.md\n  sinew artifact diff x7f3 report.md --with y81c"
)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    which: Which,
    /// The first artifact
    #[arg(value_name = "[NODE/]NAME[:vN]")]
    first: String,
    /// The second artifact [default: the same name, in the execution of --with]
    #[arg(value_name = "[NODE/]NAME[:vN]", required_unless_present = "with")]
    second: Option<String>,
    /// Execution of the second artifact [default: the same]
    #[arg(long, value_name = "ID|FILE")]
    with: Option<String>,
}

/// Runs the command.
pub(crate) fn artifact(command: ArtifactCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        match command {
            ArtifactCommand::List(args) => list(&args, output).await,
            ArtifactCommand::Get(args) => get(&args, output).await,
            ArtifactCommand::Put(args) => put(&args, output).await,
            ArtifactCommand::Diff(args) => diff(&args, output).await,
        }
    })
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let FoundExecution { record, .. } = args.which.open().await?;
    let all = artifacts(&record, args.node.as_deref());
    let rows: Vec<ArtifactRow> = all.iter().map(LeftArtifact::row).collect();
    output.value(&rows, |_| {
        if all.is_empty() {
            return "the execution has no artifacts".to_owned();
        }
        let heads = ["NAME", "VERSION", "NODE", "BYTES", "TYPE", "SHA256"];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        let is_shown = |one: &&LeftArtifact| args.all || !one.is_generated;
        let hidden = all.iter().filter(|one| !is_shown(one)).count();
        if hidden > 0 {
            output.note(&format!(
                "not shown: {} stored by the mesh; --all shows them",
                words::count(hidden, "value")
            ));
        }
        if hidden == all.len() {
            return "its agents created no artifacts".to_owned();
        }
        lines.extend(all.iter().filter(is_shown).map(|one| {
            let meta = &one.artifact.meta;
            vec![
                meta.name.to_string(),
                format!("v{}", meta.version),
                one.node.clone(),
                meta.size.to_string(),
                words::one_line(&meta.media_type, 40),
                words::short(&meta.sha256).to_owned(),
            ]
        }));
        words::columns(&lines)
    });
    Ok(Exit::Ok)
}

async fn get(args: &GetArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let bytes = read_artifact(&found, &args.name).await?;
    match &args.out {
        Some(path) => {
            std::fs::write(path, &bytes).map_err(|error| {
                Failure::new(
                    FailureKind::Failed,
                    code::FILE_CANNOT_BE_WRITTEN.as_str(),
                    format!("cannot write {}: {error}", path.display()),
                )
            })?;
            output.note(&format!("wrote {} ({})", path.display(), words::count(bytes.len(), "byte")));
        }
        None => output.bytes(&bytes),
    }
    Ok(Exit::Ok)
}

async fn put(args: &PutArgs, output: &Output) -> Result<Exit, Failure> {
    let bytes = workflow_file::read_up_to(&args.file, LARGEST_OBJECT as u64)?;
    let of_file = || args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = match &args.name {
        Some(name) => name.clone(),
        None if args.file == Path::new("-") => {
            return Err(Failure::usage("stdin needs a name; add --name"));
        }
        None => of_file().unwrap_or_default(),
    };
    let name = ArtifactName::parse(&name)
        .map_err(|bad| Failure::new(FailureKind::Usage, known(bad.code()), bad.to_string()))?;
    let remote = args.mesh.operator().await?;
    // The artifact belongs to no execution yet; a new id keeps it apart from all others.
    let execution = remote.client.execution_id(&uuid::Uuid::now_v7().to_string());
    let activation = ActivationKey::of::<&str>(&execution, "input", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let place = ArtifactOwner { app: "sinew", user: "", execution: &execution, task: &task };
    let guessed = sinew_agents::media_type(name.as_str());
    let media_type = args.media_type.as_deref().unwrap_or(guessed);
    let stored = remote.mesh().artifacts().put_object(&place, name, 0, media_type, bytes.into()).await?;
    let Ok(Content::Url(address)) = Content::of(&stored.part) else {
        return Err(Failure::new(
            FailureKind::Failed,
            code::NO_SUCH_ARTIFACT.as_str(),
            "the artifact was stored without an address",
        ));
    };
    let meta = &stored.meta;
    let document = json!({ "address": address, "name": meta.name, "size": meta.size, "sha256": meta.sha256 });
    output.value(&document, |_| address.clone());
    Ok(Exit::Ok)
}

async fn diff(args: &DiffArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let other = match &args.with {
        Some(id) => Some(Which { id: id.clone(), mesh: args.which.mesh.clone() }.open().await?),
        None => None,
    };
    let second = other.as_ref().unwrap_or(&found);
    let one = find_artifact(&found.record, &args.first)?;
    let two = find_artifact(&second.record, args.second.as_deref().unwrap_or(&args.first))?;
    let same = one.artifact.meta.sha256 == two.artifact.meta.sha256;
    let name = |one: &LeftArtifact| format!("{}/{}", one.node, one.artifact.reference());
    let side = |one: &LeftArtifact| json!({ "artifact": name(one), "size": one.artifact.meta.size, "sha256": one.artifact.meta.sha256 });
    let mut document = json!({ "same": same, "first": side(&one), "second": side(&two) });
    if !same {
        let (a, b) = (fetch(&found, &one).await?, fetch(second, &two).await?);
        if let (Some(a), Some(b)) = (comparable_text(&a), comparable_text(&b)) {
            let changes = TextDiff::from_lines(&a, &b);
            let shown = changes.unified_diff().header(&name(&one), &name(&two)).to_string();
            document["diff"] = json!(shown);
        }
    }
    output.value(&document, |document| match (same, document["diff"].as_str()) {
        (true, _) => "the artifacts are the same".to_owned(),
        (false, Some(lines)) => words::plain(lines),
        (false, None) => {
            let line = |one: &LeftArtifact| {
                let meta = &one.artifact.meta;
                let bytes = words::count(usize::try_from(meta.size).unwrap_or(usize::MAX), "byte");
                format!("{}  {bytes}  {}", name(one), meta.sha256)
            };
            format!("{}\n{}", line(&one), line(&two))
        }
    });
    Ok(if same { Exit::Ok } else { Exit::Failed })
}

/// Returns text for a comparison, JSON with a line per value; `None` for other bytes.
fn comparable_text(bytes: &[u8]) -> Option<String> {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        return serde_json::to_string_pretty(&value).ok().map(|text| text + "\n");
    }
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).map(str::to_owned)
}
