//! Catalogue attributes of an agent or a workflow: who maintains it, how mature it is, and the words
//! people ask for it with. An extension of its card.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::a2a::{AgentCard, AgentExtension};
use crate::card::extension_params;

/// URI of the extension. Its parameters are a [`Catalogue`].
pub const CATALOGUE_EXTENSION: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/catalogue/v1";

/// Maximum number of labels.
const MAX_LABELS: usize = 32;
/// Maximum number of links.
const MAX_LINKS: usize = 8;
/// Maximum number of aliases and of examples.
const MAX_PHRASES: usize = 16;
/// Maximum length of a text in characters.
const MAX_TEXT: usize = 200;

/// Maturity of an entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Suited for production.
    #[default]
    Stable,
    /// May change at any time.
    Experimental,
    /// To be replaced: ranks last in searches.
    Deprecated,
}

impl Stage {
    /// Returns the name of the stage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Experimental => "experimental",
            Self::Deprecated => "deprecated",
        }
    }
}

/// Attributes by which people and models find an agent or a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// People or team responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintainer: Option<String>,
    /// Maturity: `experimental`, `stable` (default) or `deprecated`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stage: Stage,
    /// Name of the agent or workflow to use instead of a deprecated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// Labels to filter by, at most 32.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Links by name, `https` only, at most 8. They are shown, never fetched.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, String>,
    /// Other names that people use, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Requests that it serves, in the words of those who ask, at most 16. Three different examples
    /// improve a search more than a longer description.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Whether a call changes something outside the mesh: hosts then ask their user before a model
    /// calls it through a search.
    #[serde(default, skip_serializing_if = "is_default")]
    pub side_effects: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Catalogue {
    /// Returns the attributes of a card. A card without valid attributes has none.
    pub fn of(card: &AgentCard) -> Self {
        let params = extension_params(card, CATALOGUE_EXTENSION);
        let read = params.and_then(|params| Self::deserialize(params).ok());
        read.filter(|read| read.mistake().is_none()).unwrap_or_default()
    }

    /// Returns the extension of a card; `None` without attributes.
    pub fn to_extension(&self) -> Option<AgentExtension> {
        if *self == Self::default() {
            return None;
        }
        let mut extension = AgentExtension::new(CATALOGUE_EXTENSION);
        extension.description = Some("Maintainer, stage and words to find the agent by.".to_owned());
        extension.params = serde_json::to_value(self).ok().filter(Value::is_object);
        Some(extension)
    }

    /// Returns the first member that breaks a rule, and what is wrong with it.
    pub fn mistake(&self) -> Option<(&'static str, String)> {
        let count = |member, count: usize, max: usize| {
            (count > max).then(|| (member, format!("{count} entries, at most {max} are allowed")))
        };
        let text = |member, text: &String| Some((member, text_mistake(text)?));
        let stage = (self.replaced_by.is_some() && self.stage != Stage::Deprecated).then(|| {
            ("replaced_by", "only a deprecated entry is replaced: add stage: deprecated".to_owned())
        });
        let link = |(name, link): (&String, &String)| {
            let scheme =
                (!link.starts_with("https://")).then(|| format!("{name}: a link begins with https://"));
            text("links", name).or_else(|| text("links", link)).or(scheme.map(|text| ("links", text)))
        };
        let label = |(key, value)| text("labels", key).or_else(|| text("labels", value));
        count("labels", self.labels.len(), MAX_LABELS)
            .or_else(|| count("links", self.links.len(), MAX_LINKS))
            .or_else(|| count("aliases", self.aliases.len(), MAX_PHRASES))
            .or_else(|| count("examples", self.examples.len(), MAX_PHRASES))
            .or_else(|| self.maintainer.iter().find_map(|one| text("maintainer", one)))
            .or_else(|| self.replaced_by.iter().find_map(|one| text("replaced_by", one)))
            .or(stage)
            .or_else(|| self.labels.iter().find_map(label))
            .or_else(|| self.links.iter().find_map(link))
            .or_else(|| self.aliases.iter().find_map(|one| text("aliases", one)))
            .or_else(|| self.examples.iter().find_map(|one| text("examples", one)))
    }
}

/// Returns what is wrong with a text of a catalogue.
pub(crate) fn text_mistake(text: &str) -> Option<String> {
    let length = text.chars().count();
    if text.trim().is_empty() {
        Some("a text is empty".to_owned())
    } else if text.chars().any(char::is_control) {
        Some("a text has control characters".to_owned())
    } else {
        (length > MAX_TEXT).then(|| format!("{length} characters, at most {MAX_TEXT} are allowed"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::card::Announcement;

    fn read(value: Value) -> Catalogue {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn attributes_travel_on_the_card() {
        let catalogue = read(json!({
            "maintainer": "team-payments", "stage": "deprecated", "replaced_by": "refund-v2",
            "labels": {"team": "a"}, "links": {"source": "https://git.example.com/refund"},
            "aliases": ["reimburse"], "examples": ["refund order 17"], "side_effects": true
        }));
        let announcement = Announcement {
            name: "refund".to_owned(),
            catalogue: catalogue.clone(),
            ..Announcement::default()
        };
        assert_eq!(Catalogue::of(&announcement.card("test")), catalogue);
        let plain = Announcement { name: "refund".to_owned(), ..Announcement::default() }.card("test");
        assert!(extension_params(&plain, CATALOGUE_EXTENSION).is_none());
        assert_eq!(Catalogue::of(&plain), Catalogue::default());
    }

    #[test]
    fn mistakes_name_their_member() {
        for (value, expected) in [
            (json!({"maintainer": " "}), "maintainer: a text is empty"),
            (
                json!({"replaced_by": "b"}),
                "replaced_by: only a deprecated entry is replaced: add stage: deprecated",
            ),
            (json!({"links": {"source": "http://a"}}), "links: source: a link begins with https://"),
            (json!({"aliases": ["a\u{7}"]}), "aliases: a text has control characters"),
            (json!({"examples": ["x".repeat(201)]}), "examples: 201 characters, at most 200 are allowed"),
            (json!({"examples": vec!["x"; 17]}), "examples: 17 entries, at most 16 are allowed"),
        ] {
            let mistake = read(value.clone()).mistake().map(|(member, text)| format!("{member}: {text}"));
            assert_eq!(mistake.as_deref(), Some(expected), "{value}");
        }
        assert!(serde_json::from_value::<Catalogue>(json!({"owner": "me"})).is_err());
    }
}
