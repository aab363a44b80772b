//! Converts the end of an external task to the output of a task of the mesh.

use std::string::FromUtf8Error;

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};
use serde_json::{Map, Value, json};
use sinew_agent::{Context, Failure};
use sinew_protocol::a2a::{Message, Part, PartContent, Task, TaskState};
use url::Url;

use crate::bridge_file::BridgeSettings;
use crate::remote_client::RemoteClient;
use crate::task_view::state_word;

/// Maximum size of one file of an external agent, in bytes.
const MAX_FILE_BYTES: usize = 64 << 20;
/// Maximum number of file addresses in the output.
const MAX_LINKS: usize = 100;
/// Maximum length of an artifact name's part, in characters.
const MAX_NAME: usize = 100;

/// Parts of a result, sorted by their treatment.
#[derive(Default)]
struct CollectedParts {
    texts: Vec<String>,
    data: Vec<Value>,
    artifacts: Vec<Value>,
    links: Vec<String>,
}

/// Returns the output of a completed task. With an output schema, the newest data; otherwise an
/// object with the state, and with `text`, `data`, `artifacts` and `links` if present. Files become
/// artifacts of the task; those on other hosts remain links.
pub(crate) async fn output_of(
    task: &Task,
    has_schema: bool,
    (client, settings): (&RemoteClient, &BridgeSettings),
    context: &Context,
) -> Result<Value, Failure> {
    let mut collected = CollectedParts::default();
    for artifact in task.artifacts.iter().flatten() {
        let name = artifact.name.as_deref().unwrap_or(&artifact.id.0);
        for part in &artifact.parts {
            collected.take(part, name, (client, settings), context).await?;
        }
    }
    let has_result = !collected.texts.is_empty() || !collected.data.is_empty();
    if let Some(message) = task.status.message.as_ref().filter(|_| !has_result) {
        collected.take_message(message, (client, settings), context).await?;
    }
    // Chunks of a stream are parts of one artifact.
    client.secrets().hide_in_pieces(&mut collected.texts);
    Ok(collected.into_output(has_schema, task.status.state))
}

/// Returns the output of an agent that responds with a message instead of a task.
pub(crate) async fn output_of_message(
    message: &Message,
    has_schema: bool,
    places: (&RemoteClient, &BridgeSettings),
    context: &Context,
) -> Result<Value, Failure> {
    let mut collected = CollectedParts::default();
    collected.take_message(message, places, context).await?;
    Ok(collected.into_output(has_schema, TaskState::Completed))
}

/// Returns the text of a message.
pub(crate) fn words_of(message: Option<&Message>) -> String {
    let texts: Vec<&str> = message.iter().flat_map(|message| message.texts()).collect();
    texts.join("\n")
}

/// Returns the first data of a message, or null.
pub(crate) fn data_of(message: Option<&Message>) -> Value {
    let mut parts = message.iter().flat_map(|message| &message.parts);
    parts.find_map(sinew_protocol::a2a::part_data).cloned().unwrap_or_default()
}

impl CollectedParts {
    async fn take_message(
        &mut self,
        message: &Message,
        places: (&RemoteClient, &BridgeSettings),
        context: &Context,
    ) -> Result<(), Failure> {
        for part in &message.parts {
            self.take(part, "message", places, context).await?;
        }
        Ok(())
    }

    async fn take(
        &mut self,
        part: &Part,
        name: &str,
        (client, settings): (&RemoteClient, &BridgeSettings),
        context: &Context,
    ) -> Result<(), Failure> {
        match &part.content {
            PartContent::Text(text) => self.texts.push(text.clone()),
            PartContent::Data(data) => self.data.push(data.clone()),
            PartContent::Raw(text) => {
                let bytes = decode(text).ok_or_else(|| {
                    let reason = "a file is not base64".to_owned();
                    sinew_protocol::Fault::from(crate::BridgeError::Answer { operation: "GetTask", reason })
                })?;
                self.keep(part, name, without_secrets(bytes, client), context)?;
            }
            PartContent::Url(address) => {
                let is_named = Url::parse(address).is_ok_and(|url| settings.is_named(&url));
                match if is_named { client.file(address, MAX_FILE_BYTES).await.ok() } else { None } {
                    Some(bytes) => self.keep(part, name, without_secrets(bytes, client), context)?,
                    None if self.links.len() < MAX_LINKS => self.links.push(address.clone()),
                    None => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn keep(&mut self, part: &Part, name: &str, bytes: Vec<u8>, context: &Context) -> Result<(), Failure> {
        let name = artifact_name(part.filename.as_deref().unwrap_or(name), self.artifacts.len());
        let media_type =
            part.media_type.clone().unwrap_or_else(|| sinew_agents::media_type(&name).to_owned());
        let length = bytes.len();
        let kept = context.artifacts().put(&name, media_type.clone(), bytes)?;
        self.artifacts.push(json!({
            "name": kept.name.as_str(), "version": kept.version, "media_type": media_type, "bytes": length,
        }));
        Ok(())
    }

    fn into_output(self, has_schema: bool, state: TaskState) -> Value {
        let text = self.texts.join("\n");
        if has_schema {
            if let Some(data) = self.data.into_iter().next_back() {
                return data;
            }
            // The SDK checks it against the schema, and reports violations.
            return serde_json::from_str(&text).unwrap_or(Value::String(text));
        }
        let mut output = Map::new();
        output.insert("state".to_owned(), json!(state_word(state)));
        if !text.is_empty() {
            output.insert("text".to_owned(), json!(text));
        }
        match self.data.len() {
            0 => {}
            1 => drop(output.insert("data".to_owned(), self.data.into_iter().next().unwrap_or_default())),
            _ => drop(output.insert("data".to_owned(), self.data.into())),
        }
        if !self.artifacts.is_empty() {
            output.insert("artifacts".to_owned(), self.artifacts.into());
        }
        if !self.links.is_empty() {
            output.insert("links".to_owned(), json!(self.links));
        }
        output.into()
    }
}

/// Redacts the secrets of the bridge in a text file.
fn without_secrets(bytes: Vec<u8>, client: &RemoteClient) -> Vec<u8> {
    String::from_utf8(bytes)
        .map_or_else(FromUtf8Error::into_bytes, |text| client.secrets().hide(&text).into_bytes())
}

/// Decodes base64 in any of the forms that A2A implementations write.
fn decode(text: &str) -> Option<Vec<u8>> {
    [BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD]
        .iter()
        .find_map(|form| form.decode(text.as_bytes()).ok())
}

/// Returns a valid artifact name for a name from an external agent.
fn artifact_name(name: &str, nth: usize) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let clean: String = last.chars().map(|c| if good(c) { c } else { '_' }).take(MAX_NAME).collect();
    let clean = clean.trim_matches('.');
    if clean.is_empty() { format!("file-{}", nth + 1) } else { clean.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_outside_agents_become_names_of_artifacts() {
        for (name, expected) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("..", "file-1"),
            ("a b\n", "a_b_"),
            ("", "file-1"),
        ] {
            assert_eq!(artifact_name(name, 0), expected, "{name:?}");
            assert!(sinew_protocol::ArtifactName::parse(&artifact_name(name, 0)).is_ok());
        }
    }

    #[test]
    fn outputs_have_what_there_is() {
        let collected = |texts: &[&str], data: &[Value]| CollectedParts {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            data: data.to_vec(),
            ..CollectedParts::default()
        };
        for (texts, data, has_schema, expected) in [
            (&["a", "b"][..], &[][..], false, json!({"state": "completed", "text": "a\nb"})),
            (&[], &[json!(1)], false, json!({"state": "completed", "data": 1})),
            (&[], &[json!(1), json!(2)], false, json!({"state": "completed", "data": [1, 2]})),
            (&["x"], &[json!(1), json!({"v": 2})], true, json!({"v": 2})),
            (&["{\"v\": 3}"], &[], true, json!({"v": 3})),
            (&["no"], &[], true, json!("no")),
        ] {
            let output = collected(texts, data).into_output(has_schema, TaskState::Completed);
            assert_eq!(output, expected);
        }
    }
}
