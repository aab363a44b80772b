//! Files sent with a start, as base64 in its body.

use schemars::JsonSchema;
use serde::Deserialize;
use sinew_operations::input_files::{InputFile, MAX_FILES};
use sinew_protocol::ArtifactName;

use super::api_call::bad_request;
use crate::http_error::HttpProblem;
use crate::operations::message_files::decode;

/// Media type of a file without a declared type.
const ANY_TYPE: &str = "application/octet-stream";

/// File of an input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartFile {
    /// Name of the file.
    name: String,
    /// Media type. Default: `application/octet-stream`.
    media_type: Option<String>,
    /// Content of the file in base64.
    base64: String,
}

/// Decodes files.
pub(super) fn read_files(files: Vec<StartFile>) -> Result<Vec<InputFile>, HttpProblem> {
    if files.len() > MAX_FILES {
        return Err(bad_request(format!("files: at most {MAX_FILES}")));
    }
    let read = |file: StartFile| {
        let name =
            ArtifactName::parse(&file.name).map_err(|error| bad_request(format!("files: name: {error}")))?;
        let bytes = decode(&file.base64).ok_or_else(|| bad_request("files: base64: expected base64"))?;
        let media_type = file.media_type.filter(|media_type| !media_type.is_empty());
        let media_type = media_type.unwrap_or_else(|| ANY_TYPE.to_owned());
        Ok(InputFile { name, media_type, bytes: bytes.into() })
    };
    files.into_iter().map(read).collect()
}
