//! Artifacts of an execution: files of its input, artifacts of agents, and values of the record
//! that events name.

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_documents::artifact::ArtifactRow;
use sinew_documents::words;
use sinew_execution::artifacts::made_artifacts;
use sinew_execution::events;
use sinew_inspection::record::Record;
use sinew_protocol::artifact::StoredAt;
use sinew_protocol::code;
use sinew_protocol::task::{Content, ResultArtifact};

use crate::execution_changes::FoundExecution;
use crate::failure::{Failure, FailureKind, known};

/// Member of an input with the files of a message or a start.
pub const INPUT_FILES: &str = "files";
/// Replaces the node's name for files of the input.
const INPUT: &str = "input";
/// Maximum number of an input's files in a list.
const MAX_INPUT_FILES: usize = 100;

/// An artifact, and the node whose agent created it.
#[derive(Clone, Debug)]
pub struct LeftArtifact {
    /// The node, with its position in maps and loops; `input` for a file of the input.
    pub node: String,
    /// Number of the attempt that created it, from 1; 0 for a file of the input.
    pub attempt: u32,
    /// The artifact.
    pub artifact: ResultArtifact,
    /// Whether the mesh generated its name.
    pub is_generated: bool,
}

impl LeftArtifact {
    /// Returns its row in a list.
    pub fn row(&self) -> ArtifactRow {
        ArtifactRow {
            meta: self.artifact.meta.clone(),
            node: self.node.clone(),
            attempt: self.attempt,
            inline: !matches!(self.artifact.content, Content::Url(_)),
        }
    }
}

/// Returns all artifacts of an execution: files of its input and those named by agents first, then
/// values of single tasks.
pub fn artifacts(record: &Record, node: Option<&str>) -> Vec<LeftArtifact> {
    let mut all = left(record);
    all.retain(|one| node.is_none_or(|node| node == one.node));
    all.sort_by_key(|one| one.is_generated);
    all
}

/// Returns all artifacts in the input and the replies of an execution, in order.
fn left(record: &Record) -> Vec<LeftArtifact> {
    let ctx = record.execution.ctx();
    let mut left = input_files(ctx.input());
    left.extend(made_artifacts(&ctx).into_iter().map(|made| LeftArtifact {
        node: made.node,
        attempt: made.attempt,
        artifact: made.artifact,
        is_generated: made.is_generated,
    }));
    left
}

/// Returns an input's files that are stored on the mesh. Their bytes are checked against the digest
/// in the list.
fn input_files(input: &Value) -> Vec<LeftArtifact> {
    let files = input.get(INPUT_FILES).and_then(Value::as_array).into_iter().flatten();
    let read = |file: &Value| {
        let mut file = file.as_object()?.clone();
        file.entry("version").or_insert(json!(0));
        let artifact = ResultArtifact::from_value(&Value::Object(file), &Value::Null)?;
        let is_stored = matches!(&artifact.content, Content::Url(url) if url.parse::<StoredAt>().is_ok());
        is_stored.then(|| LeftArtifact { node: INPUT.to_owned(), attempt: 0, artifact, is_generated: false })
    };
    files.take(MAX_INPUT_FILES).filter_map(read).collect()
}

/// Reads an artifact (`[NODE/]NAME[:vN]`, the newest of several) and checks it against its digest,
/// or reads a value of the record by its name in events.
pub async fn read_artifact(found: &FoundExecution, wanted: &str) -> Result<Bytes, Failure> {
    match find_artifact(&found.record, wanted) {
        Ok(one) => fetch(found, &one).await,
        Err(failure) => value_of_record(&found.record, wanted).ok_or(failure),
    }
}

/// Returns an input or output that events name by artifact, as JSON; the newest of several.
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

/// Finds an artifact by `[NODE/]NAME[:vN]`; the newest of several.
pub fn find_artifact(record: &Record, wanted: &str) -> Result<LeftArtifact, Failure> {
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
    let failure = Failure::new(FailureKind::NotFound, code::NO_SUCH_ARTIFACT.as_str(), text);
    Err(match sinew_source::did_you_mean(name, all.iter().map(|one| one.artifact.meta.name.as_str())) {
        Some(near) => failure.hint(format!("did you mean '{near}'?")),
        None => failure.hint("see `sinew artifact list ID`"),
    })
}

/// Returns the name in `[NODE/]NAME[:vN]`.
pub fn artifact_name(wanted: &str) -> &str {
    split_version(wanted.rsplit_once('/').map_or(wanted, |(_, rest)| rest)).0
}

/// Splits `NAME:v2`, the display format, or `NAME:2`.
fn split_version(text: &str) -> (&str, Option<u32>) {
    let Some((name, version)) = text.rsplit_once(':') else { return (text, None) };
    match version.strip_prefix('v').unwrap_or(version).parse() {
        Ok(version) if !name.is_empty() => (name, Some(version)),
        _ => (text, None),
    }
}

/// Fetches an artifact's bytes, checked against its digest.
pub async fn fetch(found: &FoundExecution, one: &LeftArtifact) -> Result<Bytes, Failure> {
    match (&found.remote, &one.artifact.content) {
        (Some(remote), _) => Ok(remote.mesh().artifacts().get(&one.artifact).await?),
        (None, Content::Url(_)) => {
            let text =
                format!("the bytes of '{}' are stored on the mesh, not in the file", one.artifact.meta.name);
            Err(Failure::new(FailureKind::NotFound, code::MESH_REQUIRED.as_str(), text))
        }
        (None, inline) => {
            let bytes = inline.bytes().unwrap_or_default();
            let checked = one.artifact.meta.verify(&bytes);
            checked.map_err(|bad| Failure::new(FailureKind::Failed, known(bad.code()), bad.to_string()))?;
            Ok(bytes)
        }
    }
}
