//! The format of `offer:`, which exposes an agent to hosts of the Model Context Protocol.

use schemars::JsonSchema;
use serde::Deserialize;
use sinew_protocol::mcp_offer::{ClientAbility, McpOffer, OfferKind, TaskSupport, is_resource_address};

use crate::complaint::FileComplaint;

/// Offer to hosts of the Model Context Protocol.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfferFile {
    /// Kind of thing that the agent is for hosts. The input of a prompt is its arguments, the input of a resource the
    /// variables of its address.
    #[serde(default, rename = "as")]
    pub(crate) kind: OfferKindFile,
    /// Address of a resource; parts of it in braces are variables: `notes://{id}`.
    pub(crate) uri: Option<String>,
    /// Media type of the resource's content.
    pub(crate) media_type: Option<String>,
    /// Abilities without which clients are refused.
    #[serde(default)]
    pub(crate) needs: Vec<ClientAbilityFile>,
    /// Whether calls become tasks of the host.
    #[serde(default)]
    pub(crate) tasks: TaskSupportFile,
}

/// Kind of thing that an agent is for hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OfferKindFile {
    /// A tool that models call.
    #[default]
    Tool,
    /// A prompt that users choose.
    Prompt,
    /// A resource that is read.
    Resource,
}

/// Ability of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientAbilityFile {
    /// Its user fills forms.
    Elicitation,
    /// It lends its language model.
    Sampling,
    /// It names the folders that its user works in.
    Roots,
}

/// Whether calls become tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskSupportFile {
    /// For clients that keep tasks.
    #[default]
    Optional,
    /// Always: clients that keep no tasks are refused.
    Required,
}

impl OfferFile {
    /// Converts to the offer of a card. Fails with a finding if the offer is not valid.
    pub(crate) fn to_offer(&self) -> Result<McpOffer, FileComplaint> {
        let is_resource = self.kind == OfferKindFile::Resource;
        match &self.uri {
            None if is_resource => {
                return Err(FileComplaint::new("/offer", "a resource needs a uri"));
            }
            Some(_) if !is_resource => {
                return Err(FileComplaint::new("/offer/uri", "only a resource has a uri"));
            }
            Some(uri) if !is_resource_address(uri) => {
                let text = "expected an address with a scheme of its own, whose variables are names in braces, such as \
                            notes://{id}";
                return Err(FileComplaint::new("/offer/uri", text));
            }
            _ => {}
        }
        let ability = |ability: &ClientAbilityFile| match ability {
            ClientAbilityFile::Elicitation => ClientAbility::Elicitation,
            ClientAbilityFile::Sampling => ClientAbility::Sampling,
            ClientAbilityFile::Roots => ClientAbility::Roots,
        };
        Ok(McpOffer {
            kind: match self.kind {
                OfferKindFile::Tool => OfferKind::Tool,
                OfferKindFile::Prompt => OfferKind::Prompt,
                OfferKindFile::Resource => OfferKind::Resource,
            },
            uri: self.uri.clone(),
            media_type: self.media_type.clone(),
            needs: self.needs.iter().map(ability).collect(),
            tasks: match self.tasks {
                TaskSupportFile::Optional => TaskSupport::Optional,
                TaskSupportFile::Required => TaskSupport::Required,
            },
        })
    }
}
