//! Node types of dialects with a catalogue: settings, inputs, outputs and ports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_dialects::{agentteam, covalt};
use sinew_protocol::code;
use sinew_source::did_you_mean;

use crate::failure::{Failure, FailureKind};

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
/// subtype (`TYPE.SUBTYPE`). Fails if no type has the name.
pub fn node_types(dialect: CatalogueDialect, wanted: Option<&str>) -> Result<Vec<Value>, Failure> {
    let (names, wanted): (Vec<String>, _) = match dialect {
        CatalogueDialect::Agentteam => {
            (agentteam::specs().map(str::to_owned).collect(), wanted.map(str::to_uppercase))
        }
        CatalogueDialect::Covalt => {
            (covalt::node_kinds(), wanted.map(|wanted| wanted.to_lowercase().replace('_', "-")))
        }
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fits = |name: &&str| match wanted.as_deref() {
        None => true,
        Some(wanted) => {
            name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
    };
    let found: Vec<&str> = names.iter().copied().filter(fits).collect();
    if found.is_empty() {
        return Err(unknown(&wanted.unwrap_or_default(), &names));
    }
    Ok(found
        .into_iter()
        .filter_map(|name| match dialect {
            CatalogueDialect::Agentteam => agentteam::describe(name),
            CatalogueDialect::Covalt => covalt::describe_kind(name),
        })
        .collect())
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
            let types = node_types(dialect, wanted).map_err(|failure| failure.hint.unwrap_or_default())?;
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
}
