//! Node types of dialects with a catalogue: settings, inputs, outputs and ports.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_dialects::{LowerOptions, agentteam, covalt};
use sinew_protocol::code;
use sinew_source::did_you_mean;

use crate::failure::{Failure, FailureKind};
use crate::workflow_file::{list_beside, read_beside};

/// A dialect with a catalogue of node types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatalogueDialect {
    /// Types such as `AI_AGENT`, each with subtypes.
    #[default]
    Agentteam,
    /// Types such as `llm-completion`.
    Covalt,
}

/// Returns the node types of a dialect: all, or a type, in agentteam with all its subtypes, or one
/// subtype (`TYPE.SUBTYPE`). In covalt, `folder` contains the workflow files, whose plugins are
/// further types. Fails if no type has the name, or if a plugin cannot be loaded.
pub fn node_types(
    dialect: CatalogueDialect,
    wanted: Option<&str>,
    folder: Option<&Path>,
) -> Result<Vec<Value>, Failure> {
    let all: Vec<(String, Value)> = match dialect {
        CatalogueDialect::Agentteam => agentteam::specs()
            .filter_map(|name| Some((name.to_owned(), agentteam::describe(name)?)))
            .collect(),
        CatalogueDialect::Covalt => {
            let built_in = covalt::node_kinds().into_iter();
            let built_in = built_in.filter_map(|name| covalt::describe_kind(&name).map(|kind| (name, kind)));
            built_in.chain(folder.map(plugins).transpose()?.into_iter().flatten()).collect()
        }
    };
    let wanted = wanted.map(|wanted| match dialect {
        CatalogueDialect::Agentteam => wanted.to_uppercase(),
        // Names of plugins are as written.
        CatalogueDialect::Covalt if all.iter().any(|(name, _)| name == wanted) => wanted.to_owned(),
        CatalogueDialect::Covalt => wanted.to_lowercase().replace('_', "-"),
    });
    let fits = |name: &str| match wanted.as_deref() {
        None => true,
        Some(wanted) => {
            name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
    };
    let found: Vec<Value> =
        all.iter().filter(|(name, _)| fits(name)).map(|(_, described)| described.clone()).collect();
    if found.is_empty() {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        return Err(unknown(&wanted.unwrap_or_default(), &names));
    }
    Ok(found)
}

/// Returns the types that the plugins next to the files of a folder define.
fn plugins(folder: &Path) -> Result<Vec<(String, Value)>, Failure> {
    let options = LowerOptions {
        default_name: "",
        read: &|wanted| read_beside(folder, Path::new(wanted)),
        list: &|wanted| list_beside(folder, Path::new(wanted)),
        agents: &BTreeMap::new(),
    };
    covalt::describe_plugins(&options).map_err(|reason| {
        Failure::new(FailureKind::Usage, code::NODE_PLUGIN_CANNOT_BE_LOADED.as_str(), reason)
    })
}

fn unknown(wanted: &str, names: &[&str]) -> Failure {
    let mut types: Vec<&str> = names.iter().map(|name| name.split('.').next().unwrap_or_default()).collect();
    types.dedup();
    let hint = match did_you_mean(wanted, names.iter().chain(&types).copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("the types are {}", types.join(", ")),
    };
    let text = format!("there is no node type '{wanted}'");
    Failure::new(FailureKind::NotFound, code::NODE_TYPE_WITHOUT_SPEC.as_str(), text).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_type_and_subtype() {
        let names = |dialect, wanted: Option<&str>| -> Result<Vec<String>, String> {
            let types =
                node_types(dialect, wanted, None).map_err(|failure| failure.hint.unwrap_or_default())?;
            Ok(types.iter().map(|one| format!("{} {}", one["type"], one["subtype"])).collect())
        };
        let team = |wanted| names(CatalogueDialect::Agentteam, wanted);
        assert_eq!(team(Some("flow.if")).unwrap(), ["\"FLOW\" \"IF\""]);
        let flow = team(Some("FLOW")).unwrap();
        assert!(flow.len() > 1 && flow.iter().all(|name| name.starts_with("\"FLOW\"")), "{flow:?}");
        assert!(team(None).unwrap().len() > flow.len());
        assert!(team(Some("FLOW.IFF")).unwrap_err().contains("FLOW.IF"));
        let covalt = |wanted| names(CatalogueDialect::Covalt, wanted);
        assert_eq!(covalt(Some("LLM_Completion")).unwrap(), ["\"llm-completion\" null"]);
        assert!(covalt(Some("mergee")).unwrap_err().contains("merge"));
    }

    #[test]
    fn plugins_of_the_folder_are_types() {
        let folder = tempfile::tempdir().unwrap();
        let names = || -> Result<Vec<String>, String> {
            let types = node_types(CatalogueDialect::Covalt, None, Some(folder.path()));
            let types = types.map_err(|failure| failure.message)?;
            Ok(types.iter().map(|one| one["type"].as_str().unwrap().to_owned()).collect())
        };
        let built_in = names().unwrap();
        let plugin = folder.path().join("nodes/text/shout");
        std::fs::create_dir_all(&plugin).unwrap();
        std::fs::write(plugin.join("definition.json"), r#"{"id": "shout", "category": "text"}"#).unwrap();
        std::fs::write(plugin.join("executor.py"), "def execute(data, inputs, context):\n    return {}\n")
            .unwrap();
        let with_plugin = names().unwrap();
        assert!(with_plugin.contains(&"shout".to_owned()), "{with_plugin:?}");
        assert_eq!(with_plugin.len(), built_in.len() + 1);
        let one = node_types(CatalogueDialect::Covalt, Some("shout"), Some(folder.path())).unwrap();
        assert_eq!(one[0]["category"], "text");
        std::fs::write(plugin.join("definition.json"), "{").unwrap();
        assert!(names().unwrap_err().contains("nodes/text/shout"), "the plugin is named");
    }
}
