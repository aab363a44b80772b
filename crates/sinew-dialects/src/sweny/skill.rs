//! Skills: defined in the file, found next to it, or known to every agent.

use sinew_protocol::code;
use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde_json::Value;
use sinew_source::{Diagnostic, Limits, LoadOptions, Node};

use super::model::{Skill, Workflow};

/// Skills named by the format; agents provide their tools.
pub(super) const WELL_KNOWN: &[&str] =
    &["github", "linear", "slack", "sentry", "datadog", "betterstack", "notification", "supabase"];
/// Folders to search for a skill that the file does not define, in order of precedence.
const FOLDERS: &[&str] = &[".sweny/skills", ".claude/skills", ".agents/skills", ".gemini/skills"];
/// Folder of the caller's skills. They take precedence over skills of the file: the caller knows
/// its own tools.
pub(super) const CALLER_FOLDER: &str = "caller:skills";

/// Returns every skill that nodes list, by id, and the unknown ids.
pub(super) fn collect(
    workflow: &Workflow,
    root: &Node,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    found: &mut Vec<Diagnostic>,
) -> IndexMap<String, Skill> {
    let mut skills = workflow.skills.clone();
    let mut unknown: BTreeSet<&str> = BTreeSet::new();
    let mut provided: BTreeSet<&str> = BTreeSet::new();
    let places = super::lower::written(root);
    for (node_id, node) in &workflow.nodes {
        for (n, id) in node.work.skills.iter().enumerate() {
            if provided.contains(id.as_str()) || unknown.contains(id.as_str()) {
                continue;
            }
            if let Some(skill) = discover(id, &[CALLER_FOLDER], read) {
                provided.insert(id.as_str());
                skills.insert(id.clone(), skill);
            } else if skills.contains_key(id) {
                // The file defines it.
            } else if let Some(skill) = discover(id, FOLDERS, read) {
                skills.insert(id.clone(), skill);
            } else if !WELL_KNOWN.contains(&id.as_str()) {
                unknown.insert(id.as_str());
                let place = places.get(node_id.as_str()).and_then(|node| node.get("skills"));
                let place = place.and_then(Node::as_array).and_then(|list| list.get(n));
                let message = format!("Node \"{node_id}\" references unknown skill \"{id}\"");
                let mut warning = Diagnostic::warning(code::SWENY_SETTING_PROBABLY_WRONG.as_str(), message)
                    .at(place.map(|place| place.span).unwrap_or_default())
                    .sub_code("UNKNOWN_SKILL");
                let known = workflow.skills.keys().map(String::as_str).chain(WELL_KNOWN.iter().copied());
                if let Some(near) = sinew_source::hint_for(found.len(), id, known) {
                    warning = warning.hint(format!("did you mean '{near}'?"));
                }
                found.push(warning);
            }
        }
    }
    skills
}

/// Returns the configuration that used skills need and the caller lacks, one line each. A variable
/// is looked up like a file named `env:NAME`; its value never becomes part of the plan.
pub(super) fn missing_config(
    skills: &IndexMap<String, Skill>,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Vec<String> {
    let mut missing = Vec::new();
    for (id, skill) in skills {
        for (key, field) in skill.config.iter().filter(|(_, field)| field.required) {
            let given = field.env.as_ref().is_some_and(|name| read(&format!("env:{name}")).is_ok());
            let name = field.env.as_ref().map(|name| format!(" (env: {name})")).unwrap_or_default();
            if !given {
                missing.push(format!("  {id}.{key}{name}: not provided"));
            }
        }
    }
    missing
}

/// Returns a skill from the first of these folders that contains it: `skill.json` in the published
/// form, or `SKILL.md`.
fn discover(id: &str, folders: &[&str], read: &dyn Fn(&str) -> Result<Vec<u8>, String>) -> Option<Skill> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if id.starts_with('.') || !id.chars().all(plain) {
        return None; // not a folder name
    }
    folders.iter().find_map(|folder| {
        let definition = read(&format!("{folder}/{id}/skill.json")).ok();
        let definition = definition.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        definition
            .or_else(|| read(&format!("{folder}/{id}/SKILL.md")).ok().and_then(|bytes| markdown(id, &bytes)))
    })
}

/// Parses `SKILL.md`: YAML between two lines of `---`, then the instruction.
fn markdown(id: &str, bytes: &[u8]) -> Option<Skill> {
    let text = str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let (head, body) = match text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---")) {
        Some((head, body)) => (head, body),
        None => ("", text.as_str()),
    };
    let no_file = |_: &std::path::Path| Err("skills include no files".to_owned());
    let options = LoadOptions {
        name: "SKILL.md",
        variables: sinew_source::Variables::Kept,
        read: &no_file,
        limits: Limits::default(),
    };
    let head = match sinew_source::load(head.as_bytes(), &options) {
        Ok(document) => document.root.to_json(),
        Err(_) => Value::Null,
    };
    let name = head.get("name").and_then(Value::as_str).unwrap_or(id);
    Some(Skill {
        name: Some(name.to_owned()),
        instruction: Some(body.trim().to_owned()),
        mcp: head.get("mcp").cloned().unwrap_or_default(),
        ..Skill::default()
    })
}
