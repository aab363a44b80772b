//! Files of an input: stored on the mesh, and listed in the input's member `files`, each with name,
//! media type, size, digest and address.

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_mesh::artifact::{PreparedArtifact, StoredArtifact};
use sinew_protocol::ArtifactName;
use sinew_protocol::a2a::PartContent;

use crate::execution_artifacts::INPUT_FILES;

/// Maximum number of files per start.
pub const MAX_FILES: usize = 20;

/// A file for the input of an execution.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Name of the file.
    pub name: ArtifactName,
    /// Media type.
    pub media_type: String,
    /// Content.
    pub bytes: Bytes,
}

/// Returns the entry of a file in the input's list of files. Returns `None` for a file without an
/// address.
pub fn file_entry(file: &PreparedArtifact) -> Option<Value> {
    let StoredArtifact { meta, part } = file.shown();
    let PartContent::Url(url) = part.content else { return None };
    Some(json!({
        "name": meta.name.as_str(),
        "media_type": meta.media_type,
        "size": meta.size,
        "sha256": meta.sha256,
        "url": url,
    }))
}

/// Adds a list of files to an input. A string becomes the member `text`, and null an empty object.
/// The error states why the input accepts no files.
pub fn input_with_files(input: Value, files: Vec<Value>) -> Result<Value, &'static str> {
    if files.is_empty() {
        return Ok(input);
    }
    let mut input = match input {
        Value::Null => json!({}),
        Value::String(text) => json!({ "text": text }),
        object @ Value::Object(_) => object,
        _ => return Err("files require an input that is an object or a string"),
    };
    if input.get(INPUT_FILES).is_some() {
        return Err("the input already has a member `files`");
    }
    input[INPUT_FILES] = files.into();
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_added_to_inputs() {
        let files = || json!([{ "name": "a" }]);
        for (input, expected) in [
            (Value::Null, Some(json!({ "files": files() }))),
            (json!("see"), Some(json!({ "text": "see", "files": files() }))),
            (json!({ "n": 1 }), Some(json!({ "n": 1, "files": files() }))),
            (json!({ "files": [] }), None),
            (json!([1]), None),
        ] {
            let given = input_with_files(input.clone(), vec![json!({ "name": "a" })]);
            assert_eq!(given.ok(), expected, "{input}");
        }
        assert_eq!(input_with_files(json!([1]), Vec::new()), Ok(json!([1])));
    }
}
