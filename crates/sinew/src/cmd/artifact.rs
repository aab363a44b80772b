//! `sinew artifact`: what agents of executions left, by name and version.

use sinew_protocol::code;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use similar::TextDiff;
use sinew_mesh::artifact::{LARGEST_OBJECT, Place};
use sinew_protocol::task::{Content, ResultArtifact};
use sinew_protocol::{ActivationKey, ArtifactName, TaskId};
use sinew_runtime::events;

use crate::cmd::execution::{Found, Which};
use crate::connect::{Connection, block};
use crate::exit::{Exit, Failure};
use crate::load;
use crate::output::Output;
use crate::remote::Remote;
use sinew_inspection::record::Record;
use sinew_inspection::words;

/// The execution has no such artifact.
const NO_SUCH_ARTIFACT: &str = code::NO_SUCH_ARTIFACT.as_str();

/// Commands for artifacts.
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// List the artifacts of an execution
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Fetch one
    Get(GetArgs),
    /// Put a file on the mesh, as the input of an execution to be
    Put(PutArgs),
    /// Compare two
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
    /// Only of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Show also values that the mesh stored on its own: outputs of nodes and inputs of calls
    #[arg(long)]
    all: bool,
}

/// Arguments of `sinew artifact get`.
#[derive(Args, Debug)]
#[command(
    long_about = "Fetch an artifact of an execution. Its bytes are checked against the digest in the execution's record.\n\n\
                  It is named NAME, NAME:v2 for a version, and NODE/NAME for one of this node; of several the newest \
                  is meant. Inputs and outputs that events name (`wi_orders.json`, `map_all_results.json`) are taken \
                  from the record.",
    after_help = "Examples:\n  sinew artifact get @latest report.md\n  sinew artifact get x7f3 enrich_3/table.csv -O table.csv"
)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    which: Which,
    /// Which artifact
    #[arg(value_name = "[NODE/]NAME[:vN]")]
    name: String,
    /// Write into this file instead of stdout
    #[arg(short = 'O', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Arguments of `sinew artifact put`.
#[derive(Args, Debug)]
#[command(
    long_about = "Put a file on the mesh. What is printed is its address: `sinew run NAME --input-artifact ADDRESS` \
                  takes it as input, however large it is.",
    after_help = "Examples:\n  sinew run orders --mesh --input-artifact \"$(sinew artifact put orders.json)\""
)]
pub(crate) struct PutArgs {
    /// The file (`-` for stdin)
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Its name [default: the file's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Its media type [default: by the name's ending]
    #[arg(long, value_name = "TYPE")]
    media_type: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew artifact diff`.
#[derive(Args, Debug)]
#[command(
    long_about = "Compare two artifacts of one execution, or the same of two. Texts and JSON are compared by lines, \
                  other bytes by size and digest. Exits with 1 if they differ.",
    after_help = "Examples:\n  sinew artifact diff @latest draft_iter_0/text.md draft_iter_1/text.md\n  sinew artifact diff x7f3 report.md --with y81c"
)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    which: Which,
    /// The first
    #[arg(value_name = "[NODE/]NAME[:vN]")]
    first: String,
    /// The second [default: the same, of the execution in --with]
    #[arg(value_name = "[NODE/]NAME[:vN]", required_unless_present = "with")]
    second: Option<String>,
    /// The execution of the second, instead of the same
    #[arg(long, value_name = "ID|FILE")]
    with: Option<String>,
}

/// Does what the command line says.
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

/// An artifact, and the node whose agent left it.
struct LeftArtifact {
    node: String,
    attempt: u32,
    artifact: ResultArtifact,
}

/// All artifacts that replies of an execution name, in order.
fn left(record: &Record) -> Vec<LeftArtifact> {
    let ctx = record.execution.ctx();
    let mut left = Vec::new();
    for act in 0..ctx.state.acts.len() as u32 {
        for replied in &ctx.act(act).replies {
            let Ok(reply) = &replied.result else { continue };
            let read = |artifact| ResultArtifact::from_value(artifact, &reply.output);
            for artifact in reply.artifacts.iter().filter_map(read) {
                left.push(LeftArtifact {
                    node: events::label(&ctx, act),
                    attempt: replied.attempt,
                    artifact,
                });
            }
        }
    }
    left
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let Found { record, .. } = args.which.open().await?;
    let mut all = left(&record);
    all.retain(|one| args.node.as_ref().is_none_or(|node| *node == one.node));
    // Artifacts that agents named come first: the others are values of the execution, one for each node.
    all.sort_by_key(|one| is_generated(one.artifact.meta.name.as_str()));
    let rows: Vec<Value> = all
        .iter()
        .map(|one| {
            let mut row = serde_json::to_value(&one.artifact.meta).unwrap_or_default();
            row["node"] = json!(one.node);
            row["attempt"] = json!(one.attempt);
            row["inline"] = json!(!matches!(one.artifact.content, Content::Url(_)));
            row
        })
        .collect();
    output.value(&rows, |_| {
        if all.is_empty() {
            return "it has no artifacts".to_owned();
        }
        let heads = ["NAME", "VERSION", "NODE", "BYTES", "TYPE", "SHA256"];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        let is_shown = |one: &&LeftArtifact| args.all || !is_generated(one.artifact.meta.name.as_str());
        let hidden = all.iter().filter(|one| !is_shown(one)).count();
        if hidden > 0 {
            output
                .note(&format!("{} of the mesh not shown; --all shows them", words::count(hidden, "value")));
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

/// Tells whether the mesh gave an artifact its name: `output_1a2b3c4d.json` for the output of a task, `call_….json` and
/// `wi_….json` for the input of a call.
fn is_generated(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else { return false };
    let is_id =
        |id: &str, length: usize| id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    stem.strip_prefix("output_").is_some_and(|id| is_id(id, 8))
        || stem.strip_prefix("call_").is_some_and(|id| is_id(id, 16))
        || stem.strip_prefix("wi_").and_then(|rest| rest.rsplit_once('_')).is_some_and(|(_, id)| is_id(id, 8))
}

async fn get(args: &GetArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let bytes = match find(&found.record, &args.name) {
        Ok(one) => fetch(&found, &one).await?,
        Err(failure) => value_of_record(&found.record, &args.name).ok_or(failure)?,
    };
    match &args.out {
        Some(path) => {
            std::fs::write(path, &bytes).map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    code::FILE_CANNOT_BE_WRITTEN.as_str(),
                    format!("cannot write {}: {error}", path.display()),
                )
            })?;
            output.note(&format!("wrote {} ({} bytes)", path.display(), bytes.len()));
        }
        None => output.bytes(&bytes),
    }
    Ok(Exit::Ok)
}

/// An input or output of the record that events name by artifact, as JSON; the newest of several.
fn value_of_record(record: &Record, wanted: &str) -> Option<Bytes> {
    let (node, rest) = wanted.rsplit_once('/').map_or((None, wanted), |(node, rest)| (Some(node), rest));
    let (name, version) = split_version(rest);
    let values = events::value_artifacts(&record.execution.ctx(), record.execution.id());
    let meant = values.into_iter().rfind(|one| {
        one.artifact.name.as_str() == name
            && version.is_none_or(|version| one.artifact.version == Some(version))
            && node.is_none_or(|node| one.node.as_deref() == Some(node))
    })?;
    serde_json::to_vec(&meant.value).ok().map(Bytes::from)
}

/// `[NODE/]NAME[:vN]`; the newest of several.
fn find(record: &Record, wanted: &str) -> Result<LeftArtifact, Failure> {
    let (node, rest) = wanted.rsplit_once('/').map_or((None, wanted), |(node, rest)| (Some(node), rest));
    let (name, version) = split_version(rest);
    let mut all = left(record);
    let meant = |one: &LeftArtifact| {
        let meta = &one.artifact.meta;
        meta.name.as_str() == name
            && version.is_none_or(|version| version == meta.version)
            && node.is_none_or(|node| node == one.node)
    };
    if let Some(at) = all.iter().rposition(meant) {
        return Ok(all.swap_remove(at));
    }
    let shown = words::one_line(wanted, 100);
    let text = format!("execution {} has no artifact '{shown}'", record.id());
    let failure = Failure::new(Exit::NotFound, NO_SUCH_ARTIFACT, text);
    Err(match sinew_source::did_you_mean(name, all.iter().map(|one| one.artifact.meta.name.as_str())) {
        Some(near) => failure.hint(format!("did you mean '{near}'?")),
        None => failure.hint("see `sinew artifact list ID`"),
    })
}

/// `NAME:v2`, as artifacts are shown, or `NAME:2`.
fn split_version(text: &str) -> (&str, Option<u32>) {
    let Some((name, version)) = text.rsplit_once(':') else { return (text, None) };
    match version.strip_prefix('v').unwrap_or(version).parse() {
        Ok(version) if !name.is_empty() => (name, Some(version)),
        _ => (text, None),
    }
}

/// The bytes, checked.
async fn fetch(found: &Found, one: &LeftArtifact) -> Result<Bytes, Failure> {
    match (&found.remote, &one.artifact.content) {
        (Some(remote), _) => Ok(remote.mesh().artifacts().get(&one.artifact).await?),
        (None, Content::Url(_)) => {
            let text = format!("the bytes of '{}' lie on the mesh, not in the file", one.artifact.meta.name);
            Err(Failure::new(Exit::NotFound, code::MESH_REQUIRED.as_str(), text))
        }
        (None, inline) => {
            let bytes = inline.bytes().unwrap_or_default();
            let checked = one.artifact.meta.verify(&bytes);
            checked
                .map_err(|bad| Failure::new(Exit::Failed, crate::exit::known(bad.code()), bad.to_string()))?;
            Ok(bytes)
        }
    }
}

async fn put(args: &PutArgs, output: &Output) -> Result<Exit, Failure> {
    let bytes = load::read_up_to(&args.file, LARGEST_OBJECT as u64)?;
    let of_file = || args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = match &args.name {
        Some(name) => name.clone(),
        None if args.file == Path::new("-") => {
            return Err(Failure::usage("--name says what stdin is called"));
        }
        None => of_file().unwrap_or_default(),
    };
    let name = ArtifactName::parse(&name)
        .map_err(|bad| Failure::new(Exit::Usage, crate::exit::known(bad.code()), bad.to_string()))?;
    let remote = Remote::open(&args.mesh).await?;
    // It belongs to no execution yet: an id of its own keeps it apart from all others.
    let execution = remote.client.execution_id(&uuid::Uuid::now_v7().to_string());
    let activation = ActivationKey::of::<&str>(&execution, "input", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let place = Place { app: "sinew", user: "", execution: &execution, task: &task };
    let guessed = sinew_agents::media_type(name.as_str());
    let media_type = args.media_type.as_deref().unwrap_or(guessed);
    let stored = remote.mesh().artifacts().put_object(&place, name, 0, media_type, bytes.into()).await?;
    let Ok(Content::Url(address)) = Content::of(&stored.part) else {
        return Err(Failure::new(
            Exit::Failed,
            NO_SUCH_ARTIFACT,
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
    let one = find(&found.record, &args.first)?;
    let two = find(&second.record, args.second.as_deref().unwrap_or(&args.first))?;
    let same = one.artifact.meta.sha256 == two.artifact.meta.sha256;
    let name = |one: &LeftArtifact| format!("{}/{}", one.node, one.artifact.reference());
    let side = |one: &LeftArtifact| json!({ "artifact": name(one), "size": one.artifact.meta.size, "sha256": one.artifact.meta.sha256 });
    let mut document = json!({ "same": same, "first": side(&one), "second": side(&two) });
    if !same {
        let (a, b) = (fetch(&found, &one).await?, fetch(second, &two).await?);
        if let (Some(a), Some(b)) = (text(&a), text(&b)) {
            let changes = TextDiff::from_lines(&a, &b);
            let shown = changes.unified_diff().header(&name(&one), &name(&two)).to_string();
            document["diff"] = json!(shown);
        }
    }
    output.value(&document, |document| match (same, document["diff"].as_str()) {
        (true, _) => "they are the same".to_owned(),
        (false, Some(lines)) => words::plain(lines),
        (false, None) => {
            let line = |one: &LeftArtifact| {
                format!("{}  {} bytes  {}", name(one), one.artifact.meta.size, one.artifact.meta.sha256)
            };
            format!("{}\n{}", line(&one), line(&two))
        }
    });
    Ok(if same { Exit::Ok } else { Exit::Failed })
}

/// As text, JSON with a line per value; none for other bytes.
fn text(bytes: &[u8]) -> Option<String> {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        return serde_json::to_string_pretty(&value).ok().map(|text| text + "\n");
    }
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_mesh_gave_are_told_from_names_of_people() {
        for (name, want) in [
            ("output_1a2b3c4d.json", true),
            ("call_0123456789abcdef.json", true),
            ("wi_orders_0000000f.json", true),
            ("output_report.json", false),
            ("output.json", false),
            ("report.md", false),
            ("wi_fi.json", false),
        ] {
            assert_eq!(is_generated(name), want, "{name}");
        }
    }
}
