//! The format of `offer:`, which exposes an agent to hosts of the Model Context Protocol.

use schemars::JsonSchema;
use serde::Deserialize;
use sinew_protocol::mcp_offer::{ClientAbility, McpOffer, OfferKind, TaskSupport, is_resource_address};

use crate::complaint::FileComplaint;

/// How an agent is exposed to hosts of the Model Context Protocol.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfferFile {
    /// Whether the agent is a `tool` (default), a `prompt` or a `resource`. The input of a prompt
    /// is its arguments, that of a resource the variables of its URI.
    #[serde(default, rename = "as")]
    pub(crate) kind: OfferKindFile,
    /// URI of a resource, or a URI template with variables in braces: `notes://{id}`. Required for
    /// `as: resource`, invalid otherwise.
    pub(crate) uri: Option<String>,
    /// Media type of the resource's content, such as `text/markdown`.
    pub(crate) media_type: Option<String>,
    /// Client capabilities that a call requires. Clients without them are rejected.
    #[serde(default)]
    pub(crate) needs: Vec<ClientAbilityFile>,
    /// Whether clients must support the tasks extension: `optional` (default) or `required`.
    #[serde(default)]
    pub(crate) tasks: TaskSupportFile,
}

/// What an agent is for MCP hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OfferKindFile {
    /// A tool that models call.
    #[default]
    Tool,
    /// A prompt that users choose.
    Prompt,
    /// A resource that clients read.
    Resource,
}

/// A capability of an MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientAbilityFile {
    /// The client asks its user to fill in a form.
    Elicitation,
    /// The client runs completions with its language model.
    Sampling,
    /// The client lists the directories of its user's workspace.
    Roots,
}

/// Whether clients must support the tasks extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskSupportFile {
    /// Calls of clients that support the tasks extension become tasks.
    #[default]
    Optional,
    /// Clients that do not support the tasks extension are rejected.
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
