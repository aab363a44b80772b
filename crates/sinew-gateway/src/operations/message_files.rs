//! Files in messages: stored on the mesh, so that the message is small and any agent can read them.
//! A rejected message stores no files, so all files are prepared before the first is stored.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};
use serde_json::Value;
use sinew_mesh::Mesh;
use sinew_mesh::artifact::{ArtifactOwner, PreparedArtifact};
use sinew_operations::input_files::{file_entry, input_with_files};
use sinew_protocol::a2a::{A2aError, Message, Part, PartContent, part_data};
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::{ArtifactName, ExecutionId, Fault, TaskId, code};

/// Owner of a message's files: the task that the message creates.
pub(super) struct FileOwner<'a> {
    pub(super) agent: &'a str,
    pub(super) caller: &'a str,
    pub(super) execution: &'a ExecutionId,
    pub(super) task: &'a TaskId,
}

impl FileOwner<'_> {
    fn artifact_owner(&self) -> ArtifactOwner<'_> {
        ArtifactOwner { app: self.agent, user: self.caller, execution: self.execution, task: self.task }
    }
}

/// Returns whether parts of a message contain bytes.
pub(super) fn has_files(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part.content, PartContent::Raw(_)))
}

/// Returns whether data is all that a message contains.
pub(super) fn is_data(message: &Message) -> bool {
    matches!(message.parts.as_slice(), [Part { content: PartContent::Data(_), .. }])
}

/// Returns the text of a message that contains nothing else.
pub(super) fn text_of(message: &Message) -> Option<String> {
    let texts = message.parts.iter().map(Part::text_content).collect::<Option<Vec<&str>>>();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"))
}

/// Prepares files that are too large for a message; their parts contain the addresses.
pub(super) async fn prepare_large_files(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    message: &mut Message,
) -> Result<Vec<PreparedArtifact>, A2aError> {
    let mut prepared = Vec::new();
    for (nth, part) in message.parts.iter_mut().enumerate() {
        let PartContent::Raw(text) = &part.content else { continue };
        // Four characters encode three bytes.
        if text.len() / 4 * 3 <= INLINE_LIMIT {
            continue;
        }
        let file = prepare_part(mesh, owner, nth, part).await?;
        part.content = file.shown().part.content;
        prepared.push(file);
    }
    Ok(prepared)
}

/// Checked files of a message to a workflow that are not stored yet, and the resulting input.
#[derive(Debug)]
pub(super) struct PreparedFiles {
    pub(super) files: Vec<PreparedArtifact>,
    pub(super) input: Value,
}

/// Prepares the files of a message to a workflow. A single JSON file is the input, and so is data that
/// is too large for a message; other files
/// become the input's member `files`, each with name, media type, size, digest and address, next to
/// the text or data.
pub(super) async fn prepare_files(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    message: &mut Message,
) -> Result<PreparedFiles, A2aError> {
    if let [part] = message.parts.as_mut_slice()
        && let PartContent::Data(input) = &part.content
    {
        let input = input.clone();
        let file = prepare_data(mesh, owner, &input).await?;
        part.content = file.shown().part.content;
        return Ok(PreparedFiles { files: vec![file], input });
    }
    if let [part] = message.parts.as_mut_slice()
        && part.media_type.as_deref().is_some_and(is_json)
    {
        return prepare_input(mesh, owner, part).await;
    }
    let (mut files, mut entries) = (Vec::new(), Vec::new());
    for (nth, part) in message.parts.iter().enumerate() {
        if !matches!(part.content, PartContent::Raw(_)) {
            continue;
        }
        let file = prepare_part(mesh, owner, nth, part).await?;
        entries.push(file_entry(&file).ok_or_else(|| A2aError::internal("a file has no address"))?);
        files.push(file);
    }
    let input = give_files(message, entries)?;
    Ok(PreparedFiles { files, input })
}

/// Prepares data as a JSON file.
async fn prepare_data(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    data: &Value,
) -> Result<PreparedArtifact, A2aError> {
    let name = ArtifactName::parse("input.json").map_err(|error| bad(0, &error.to_string()))?;
    let bytes = data.to_string().into_bytes().into();
    let prepared =
        mesh.artifacts().prepare(&owner.artifact_owner(), name, 0, "application/json", bytes).await;
    prepared.map_err(|error| bad(0, &error.to_string()))
}

/// Prepares a JSON file that is the input.
async fn prepare_input(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    part: &mut Part,
) -> Result<PreparedFiles, A2aError> {
    let file = prepare_part(mesh, owner, 0, part).await?;
    let input: Value = serde_json::from_slice(file.bytes()).map_err(|error| bad(0, &error.to_string()))?;
    if file.bytes().len() <= INLINE_LIMIT {
        part.content = PartContent::Data(input.clone());
        return Ok(PreparedFiles { files: Vec::new(), input });
    }
    part.content = file.shown().part.content;
    Ok(PreparedFiles { files: vec![file], input })
}

async fn prepare_part(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    nth: usize,
    part: &Part,
) -> Result<PreparedArtifact, A2aError> {
    let PartContent::Raw(text) = &part.content else { return Err(bad(nth, "expected a file")) };
    let bytes = decode(text).ok_or_else(|| bad(nth, "raw: expected base64"))?;
    let media_type = part.media_type.as_deref().unwrap_or("application/octet-stream");
    let name = part.filename.clone().unwrap_or_else(|| format!("file-{}", nth + 1));
    let name = ArtifactName::parse(&name).map_err(|error| bad(nth, &format!("filename: {error}")))?;
    let prepared = mesh.artifacts().prepare(&owner.artifact_owner(), name, 0, media_type, bytes.into()).await;
    prepared.map_err(|error| bad(nth, &error.to_string()))
}

/// Adds the list of files to the text or data of the message, and returns the resulting input.
fn give_files(message: &mut Message, files: Vec<Value>) -> Result<Value, A2aError> {
    message.parts.retain(|part| !matches!(part.content, PartContent::Raw(_)));
    let given = if let Some(data) = message.parts.iter().find_map(part_data) {
        data.clone()
    } else {
        let texts: Vec<&str> = message.parts.iter().filter_map(Part::text_content).collect();
        if texts.is_empty() { Value::Null } else { texts.join("\n").into() }
    };
    let input = input_with_files(given, files);
    let input = input.map_err(|why| A2aError::invalid_params(format!("message.parts: {why}")))?;
    message.parts.retain(|part| part_data(part).is_none());
    message.parts.push(Part::data(input.clone()));
    Ok(input)
}

/// Decodes base64 in any of its alphabets.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    [BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD].iter().find_map(|form| form.decode(text).ok())
}

fn is_json(media_type: &str) -> bool {
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    bare.eq_ignore_ascii_case("application/json")
}

fn bad(nth: usize, text: &str) -> A2aError {
    let text = format!("message.parts[{nth}]: {text}");
    error_of(&Fault::invalid(code::GATEWAY_MESSAGE_MALFORMED.as_str(), text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_stand_beside_text_or_data() {
        let file = || Part::raw("AAEC");
        let listed = || vec![json!({"name": "a.bin"})];
        let check = |parts: Vec<Part>, expected: Option<Value>| {
            let mut message = Message::user("m", parts);
            let given = give_files(&mut message, listed()).ok();
            assert_eq!(given, expected);
            if let Some(given) = given {
                assert_eq!(message.parts.iter().find_map(part_data), Some(&given));
            }
        };
        check(vec![file()], Some(json!({"files": listed()})));
        check(
            vec![Part::text("a"), file(), Part::text("b")],
            Some(json!({"text": "a\nb", "files": listed()})),
        );
        check(vec![Part::data(json!({"n": 1})), file()], Some(json!({"n": 1, "files": listed()})));
        check(vec![Part::data(json!([1])), file()], None);
        check(vec![Part::data(json!({"files": []})), file()], None);
    }

    #[test]
    fn base64_is_read_in_all_its_forms() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(decode(text), Some(vec![0xfb, 0xff]), "{text}");
        }
        assert_eq!(decode("a b"), None);
    }
}
