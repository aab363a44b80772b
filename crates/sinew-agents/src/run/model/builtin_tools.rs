//! Built-in tools: artifacts of the task, texts of skills, the time, a question to a person.

use serde_json::{Value, json};
use sinew_model::ToolCall;

use crate::artifacts::Artifacts;
use crate::call::Call;

/// Maximum bytes that a call reads from an artifact.
const MAX_READ_BYTES: u64 = 64 << 10;

/// Built-in tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltinTool {
    ListArtifacts,
    ReadArtifact,
    WriteArtifact,
    ReadSkill,
    Time,
    AskPerson,
}

/// A skill of a model agent.
#[derive(Debug, Clone)]
pub(crate) struct SkillText {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) body: String,
}

impl BuiltinTool {
    /// Returns the default name of the tool.
    pub(crate) fn name(self) -> &'static str {
        self.declaration().0
    }

    pub(super) fn declaration(self) -> (&'static str, &'static str, Value) {
        let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        match self {
            Self::Time => ("time", "The date and time now, in UTC.", object(json!({}), json!([]))),
            Self::ListArtifacts => (
                "artifact_list",
                "Lists the artifacts of this task: names, versions, sizes.",
                object(json!({}), json!([])),
            ),
            Self::ReadArtifact => (
                "artifact_read",
                "Reads an artifact as text: a part by offset and length in bytes, or a value by JSON pointer.",
                object(
                    json!({
                        "name": {"type": "string"},
                        "version": {"type": "integer", "minimum": 0},
                        "offset": {"type": "integer", "minimum": 0},
                        "length": {"type": "integer", "minimum": 1, "maximum": MAX_READ_BYTES},
                        "pointer": {"type": "string", "description": "JSON pointer such as /orders/0/id"},
                    }),
                    json!(["name"]),
                ),
            ),
            Self::WriteArtifact => (
                "artifact_write",
                "Stores text as the next version of an artifact, and returns its name with the version.",
                object(
                    json!({
                        "name": {"type": "string", "description": "such as report.md or result.json"},
                        "content": {"type": "string"},
                    }),
                    json!(["name", "content"]),
                ),
            ),
            Self::ReadSkill => (
                "skill_read",
                "Reads the whole text of a skill.",
                object(json!({"name": {"type": "string"}}), json!(["name"])),
            ),
            Self::AskPerson => (
                "ask_person",
                "Asks a person and waits for the answer. Use it only if the task cannot be done without the answer.",
                object(json!({"question": {"type": "string"}}), json!(["question"])),
            ),
        }
    }

    pub(super) fn run(self, call: &ToolCall, task: &Call, skills: &[SkillText]) -> Result<Value, String> {
        let text = |key: &str| call.arguments[key].as_str().unwrap_or_default();
        match self {
            Self::Time => Ok(Value::String(httpdate::fmt_http_date(std::time::SystemTime::now()))),
            Self::ListArtifacts => {
                let all = task.artifacts.list().map_err(|error| error.to_string())?;
                let line = |meta: &crate::ArtifactMeta| json!({"name": meta.name, "version": meta.version, "media_type": meta.media_type, "size": meta.size});
                Ok(all.iter().map(line).collect())
            }
            Self::ReadArtifact => read_artifact(task.artifacts.as_ref(), &call.arguments),
            Self::WriteArtifact => {
                let stored = task.artifacts.put(text("name"), text("content").as_bytes(), None);
                let reference = stored.map_err(|error| error.to_string())?;
                Ok(json!({"artifact": reference.to_string()}))
            }
            Self::ReadSkill => {
                let name = text("name");
                let found = skills.iter().find(|skill| skill.name == name);
                let names = || skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ");
                found
                    .map(|skill| skill.body.clone().into())
                    .ok_or_else(|| format!("the skills are: {}", names()))
            }
            // The conversation itself sends the question and logs the answer.
            Self::AskPerson => Err("a question to a person is not a call".to_owned()),
        }
    }
}

fn read_artifact(artifacts: &dyn Artifacts, arguments: &Value) -> Result<Value, String> {
    let number = |key: &str| arguments[key].as_u64();
    let name = arguments["name"].as_str().unwrap_or_default();
    // The name can contain a version, as references do.
    let (name, in_name) = sinew_protocol::embed::split_version(name);
    let version = number("version").and_then(|version| u32::try_from(version).ok()).or(in_name);
    let bytes = artifacts.get(name, version).map_err(|error| error.to_string())?;
    if let Some(pointer) = arguments["pointer"].as_str() {
        let document: Value =
            serde_json::from_slice(&bytes).map_err(|error| format!("the artifact is not JSON: {error}"))?;
        return document.pointer(pointer).cloned().ok_or_else(|| format!("there is nothing at '{pointer}'"));
    }
    let offset = usize::try_from(number("offset").unwrap_or(0)).unwrap_or(usize::MAX).min(bytes.len());
    let length = usize::try_from(number("length").unwrap_or(MAX_READ_BYTES)).unwrap_or(usize::MAX);
    let end = offset.saturating_add(length).min(bytes.len());
    Ok(json!({
        "text": String::from_utf8_lossy(&bytes[offset..end]),
        "offset": offset,
        "size": bytes.len(),
    }))
}
