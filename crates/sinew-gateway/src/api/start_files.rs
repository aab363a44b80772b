//! Files sent with a start: stored on the mesh, and listed in the input like files of messages.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_protocol::a2a::PartContent;
use sinew_protocol::{ActivationKey, ArtifactName, ExecutionId, TaskId, Token};

use super::api_call::{ApiCall, bad_request};
use crate::http_error::HttpProblem;
use crate::operations::message_files::decode;
use sinew_mesh::artifact::{ArtifactOwner, PreparedArtifact, StoredArtifact};
use sinew_operations::execution_artifacts::INPUT_FILES;

/// Maximum number of files per start.
const MAX_FILES: usize = 20;
/// Media type of a file without a declared type.
const ANY_TYPE: &str = "application/octet-stream";

/// A file that is sent with a start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartFile {
    /// Name of the file.
    name: String,
    /// Media type; `application/octet-stream` unless given.
    media_type: Option<String>,
    /// Bytes of the file in base64.
    base64: String,
}

/// A file that was read and is not stored yet.
pub(super) struct ReadFile {
    name: ArtifactName,
    media_type: String,
    bytes: Vec<u8>,
}

/// Reads files.
pub(super) fn read_files(files: Vec<StartFile>) -> Result<Vec<ReadFile>, HttpProblem> {
    if files.len() > MAX_FILES {
        return Err(bad_request(format!("files: at most {MAX_FILES}")));
    }
    let read = |file: StartFile| {
        let name =
            ArtifactName::parse(&file.name).map_err(|error| bad_request(format!("files: name: {error}")))?;
        let bytes = decode(&file.base64).ok_or_else(|| bad_request("files: base64: expected base64"))?;
        let media_type = file.media_type.filter(|media_type| !media_type.is_empty());
        Ok(ReadFile { name, media_type: media_type.unwrap_or_else(|| ANY_TYPE.to_owned()), bytes })
    };
    files.into_iter().map(read).collect()
}

/// Adds a list of files to the input. An input that is not an object becomes the member `text`.
pub(super) fn input_with(input: Value, files: Vec<Value>) -> Result<Value, HttpProblem> {
    if files.is_empty() {
        return Ok(input);
    }
    let mut input = match input {
        Value::Null => json!({}),
        Value::String(text) => json!({ "text": text }),
        object @ Value::Object(_) => object,
        _ => return Err(bad_request("files: require an input that is an object or a string")),
    };
    if input.get(INPUT_FILES).is_some() {
        return Err(bad_request("files: the input already has a member `files`"));
    }
    input[INPUT_FILES] = files.into();
    Ok(input)
}

impl ReadFile {
    /// Prepares the file for a new execution: the artifact, not stored yet, and its entry in the
    /// input.
    pub(super) async fn prepare(
        self,
        call: &ApiCall,
        workflow: &str,
        execution: &ExecutionId,
    ) -> Result<(PreparedArtifact, Value), HttpProblem> {
        let activation = ActivationKey::of::<&str>(execution, Token::of(workflow).as_str(), &[], 0);
        let task = TaskId::of(execution, &activation, 1);
        let mesh = call.operator.mesh();
        let place = ArtifactOwner { app: workflow, user: mesh.caller().as_str(), execution, task: &task };
        let Self { name, media_type, bytes } = self;
        let prepared = mesh.artifacts().prepare(&place, name, 0, &media_type, bytes.into()).await;
        let prepared = prepared.map_err(|error| bad_request(format!("files: {error}")))?;
        let StoredArtifact { meta, part } = prepared.shown();
        let PartContent::Url(url) = part.content else {
            return Err(bad_request("files: a file has no address"));
        };
        let entry = json!({
            "name": meta.name.as_str(),
            "media_type": meta.media_type,
            "size": meta.size,
            "sha256": meta.sha256,
            "url": url,
        });
        Ok((prepared, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stand_beside_inputs() {
        let check = |input: Value, expected: Option<Value>| {
            let given = input_with(input.clone(), vec![json!({"name": "a"})]);
            assert_eq!(given.ok(), expected, "{input}");
        };
        let files = || json!([{"name": "a"}]);
        check(Value::Null, Some(json!({"files": files()})));
        check(json!("see"), Some(json!({"text": "see", "files": files()})));
        check(json!({"n": 1}), Some(json!({"n": 1, "files": files()})));
        check(json!({"files": []}), None);
        check(json!([1]), None);
        assert_eq!(input_with(json!([1]), Vec::new()).unwrap(), json!([1]));
    }
}
