//! Records of administrators about entries of the catalogue, in the stream ACCESS: pinned, hidden and
//! deprecated agents and workflows.

use serde::{Deserialize, Serialize};

use crate::Token;
use crate::access::read_record;
use crate::catalogue::{Catalogue, Stage, text_mistake};
use crate::message::BadMessage;

/// Maximum number of pinned entries of a mesh: short lists contain all of them.
pub const MAX_PINNED: usize = 20;

/// What administrators set for an agent or a workflow. It takes precedence over its card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueRecord {
    /// Name of the agent or workflow.
    pub name: String,
    /// Whether short lists contain it: of MCP tools, and of skills of the mesh.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Whether lists and searches omit it. Calls are not affected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Maturity, instead of the author's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// What to use instead of a deprecated entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// When it was set, milliseconds since 1970 UTC.
    pub set_at: u64,
    /// User who set it.
    pub set_by: String,
}

impl CatalogueRecord {
    /// Parses the record of the entry with this token.
    pub fn read(id: &Token, body: &[u8]) -> Result<Self, BadMessage> {
        let read: Self = read_record(body)?;
        let bad = |reason: String| BadMessage::Field { kind: "catalogue record".to_owned(), reason };
        if Token::of(&read.name) != *id {
            return Err(bad("name: not that of the subject".to_owned()));
        }
        read.check().map_err(bad)?;
        Ok(read)
    }

    /// Returns an error message if the record contradicts itself.
    pub fn check(&self) -> Result<(), String> {
        if self.replaced_by.is_some() && self.stage != Some(Stage::Deprecated) {
            return Err("replaced_by: only a deprecated entry is replaced".to_owned());
        }
        let texts = [Some(&self.name), self.replaced_by.as_ref()];
        texts.into_iter().flatten().find_map(|text| text_mistake(text)).map_or(Ok(()), Err)
    }

    /// Returns whether the record sets nothing.
    pub fn is_empty(&self) -> bool {
        !self.pinned && !self.hidden && self.stage.is_none() && self.replaced_by.is_none()
    }

    /// Returns the attributes of a card with those that administrators set.
    pub fn merged(&self, mut of_author: Catalogue) -> Catalogue {
        if let Some(stage) = self.stage {
            of_author.stage = stage;
            of_author.replaced_by = self.replaced_by.clone().or(of_author.replaced_by);
            if stage != Stage::Deprecated {
                of_author.replaced_by = None;
            }
        }
        of_author
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_read_back_or_refused() {
        let read = |value: serde_json::Value| {
            CatalogueRecord::read(&Token::of("refund"), value.to_string().as_bytes())
        };
        let good =
            json!({"name": "refund", "stage": "deprecated", "replaced_by": "b", "set_at": 1, "set_by": "a"});
        let record = read(good.clone()).unwrap();
        assert_eq!(serde_json::to_value(&record).unwrap(), good);
        let merged = record.merged(Catalogue::default());
        assert_eq!((merged.stage, merged.replaced_by.as_deref()), (Stage::Deprecated, Some("b")));
        for (member, value) in [
            ("name", json!("other")),
            ("stage", json!("stable")),
            ("stage", json!("final")),
            ("replaced_by", json!("x".repeat(201))),
            ("replaced_by", json!("a\u{7}")),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_stage_of_administrators_replaces_that_of_the_author() {
        let of_author = Catalogue {
            stage: Stage::Deprecated,
            replaced_by: Some("new".to_owned()),
            ..Catalogue::default()
        };
        let record = CatalogueRecord { stage: Some(Stage::Stable), ..CatalogueRecord::default() };
        assert_eq!(record.merged(of_author.clone()), Catalogue::default());
        assert_eq!(CatalogueRecord::default().merged(of_author.clone()), of_author);
    }
}
