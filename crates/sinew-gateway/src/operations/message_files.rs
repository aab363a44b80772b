//! Files in messages: stored on the mesh, so that the message is small and any agent can read them.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};
use serde_json::{Value, json};
use sinew_mesh::Mesh;
use sinew_mesh::artifact::{Place, StoredArtifact};
use sinew_protocol::a2a::{A2aError, Message, Part, PartContent, part_data};
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::{ArtifactName, ExecutionId, Fault, TaskId, code};

use super::peer::mesh_failed;

/// Member of the input that lists the files of a message.
pub(crate) const FILES: &str = "files";

/// Owner of the files of a message: the task that the message makes.
pub(super) struct FileOwner<'a> {
    pub(super) agent: &'a str,
    pub(super) caller: &'a str,
    pub(super) execution: &'a ExecutionId,
    pub(super) task: &'a TaskId,
}

/// Whether parts of a message hold bytes.
pub(super) fn has_files(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part.content, PartContent::Raw(_)))
}

/// Stores files that are too large to travel within a message; their parts name the addresses.
pub(super) async fn store_large_files(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    message: &mut Message,
) -> Result<(), A2aError> {
    for (nth, part) in message.parts.iter_mut().enumerate() {
        let PartContent::Raw(text) = &part.content else { continue };
        // Four characters are three bytes.
        if text.len() / 4 * 3 <= INLINE_LIMIT {
            continue;
        }
        let stored = store_part(mesh, owner, nth, part).await?;
        part.content = stored.part.content;
    }
    Ok(())
}

/// Stores the files of a message to a workflow. A file of JSON that comes alone is the input; other files are the member
/// `files` of the input, each with name, media type, size, digest and address, beside the text or data.
pub(super) async fn store_files(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    message: &mut Message,
) -> Result<(), A2aError> {
    let is_alone = message.parts.len() == 1;
    let mut files = Vec::new();
    for (nth, part) in message.parts.iter_mut().enumerate() {
        let PartContent::Raw(text) = &part.content else { continue };
        let is_input = is_alone && part.media_type.as_deref().is_some_and(is_json);
        if is_input && text.len() / 4 * 3 <= INLINE_LIMIT {
            let bytes = decode(text).ok_or_else(|| bad(nth, "raw: expected base64"))?;
            let data = serde_json::from_slice(&bytes).map_err(|error| bad(nth, &error.to_string()))?;
            part.content = PartContent::Data(data);
            return Ok(());
        }
        let stored = store_part(mesh, owner, nth, part).await?;
        let PartContent::Url(address) = &stored.part.content else {
            return Err(A2aError::internal("a file has no address"));
        };
        if is_input {
            part.content = PartContent::Url(address.clone());
            return Ok(());
        }
        files.push(json!({
            "name": stored.meta.name.as_str(),
            "media_type": stored.meta.media_type,
            "size": stored.meta.size,
            "sha256": stored.meta.sha256,
            "url": address,
        }));
    }
    give_files(message, files)
}

async fn store_part(
    mesh: &Mesh,
    owner: &FileOwner<'_>,
    nth: usize,
    part: &Part,
) -> Result<StoredArtifact, A2aError> {
    let PartContent::Raw(text) = &part.content else { return Err(bad(nth, "expected a file")) };
    let bytes = decode(text).ok_or_else(|| bad(nth, "raw: expected base64"))?;
    let media_type = part.media_type.as_deref().unwrap_or("application/octet-stream");
    let name = part.filename.clone().unwrap_or_else(|| format!("file-{}", nth + 1));
    let name = ArtifactName::parse(&name).map_err(|error| bad(nth, &format!("filename: {error}")))?;
    let place = Place { app: owner.agent, user: owner.caller, execution: owner.execution, task: owner.task };
    let stored = mesh.artifacts().put_object(&place, name, 0, media_type, bytes.into()).await;
    stored.map_err(|error| mesh_failed(&error))
}

/// Puts the list of files beside the text or data of the message.
fn give_files(message: &mut Message, files: Vec<Value>) -> Result<(), A2aError> {
    message.parts.retain(|part| !matches!(part.content, PartContent::Raw(_)));
    let mut input = match message.parts.iter().find_map(part_data) {
        Some(Value::Object(data)) => Value::Object(data.clone()),
        Some(_) => {
            let text = "message.parts: files go beside data that is an object, or beside text";
            return Err(A2aError::invalid_params(text));
        }
        None => {
            let texts: Vec<&str> = message.parts.iter().filter_map(Part::text_content).collect();
            if texts.is_empty() { json!({}) } else { json!({"text": texts.join("\n")}) }
        }
    };
    if input.get(FILES).is_some() {
        let text = "message.parts: the data has a member files already, and the message has files";
        return Err(A2aError::invalid_params(text));
    }
    input[FILES] = files.into();
    message.parts.retain(|part| part_data(part).is_none());
    message.parts.push(Part::data(input));
    Ok(())
}

/// The bytes of base64, in any of its alphabets.
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
    use super::*;

    #[test]
    fn files_stand_beside_text_or_data() {
        let file = || Part::raw("AAEC");
        let listed = || vec![json!({"name": "a.bin"})];
        let check = |parts: Vec<Part>, expected: Option<Value>| {
            let mut message = Message::user("m", parts);
            let given = give_files(&mut message, listed()).ok();
            let data = message.parts.iter().find_map(part_data).cloned();
            assert_eq!(given.and(data), expected);
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
