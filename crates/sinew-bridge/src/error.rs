//! Reasons why an external agent cannot be used, each with its operator code.

use sinew_protocol::{Fault, FaultKind, code};

/// Maximum length of an external agent's text in an error, in characters.
const MAX_QUOTED: usize = 500;

/// Failure of a bridge, or of one task of its external agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// A setting cannot be used.
    #[error("{setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Defect of the setting.
        reason: String,
    },
    /// The card of the external agent cannot be read.
    #[error("the card at {address} cannot be used: {reason}")]
    Card {
        /// Address of the card.
        address: String,
        /// Defect of the card, or failure of the request.
        reason: String,
        /// Whether the card may be available later.
        may_pass: bool,
    },
    /// The card is not signed by a configured key.
    #[error("the card at {address} is not trusted: {reason}")]
    Untrusted {
        /// Address of the card.
        address: String,
        /// Defect of the signature.
        reason: String,
    },
    /// The card has no interface that the bridge supports.
    #[error("the external agent has no usable interface: {reason}")]
    Interface {
        /// Interfaces of the card, and why they cannot be used.
        reason: String,
    },
    /// The response of the external agent violates A2A or exceeds the limits.
    #[error("the external agent's response to {operation} is invalid: {reason}")]
    Answer {
        /// Called operation.
        operation: &'static str,
        /// Defect of the response.
        reason: String,
    },
    /// The external agent refused an operation.
    #[error("the external agent refused {operation}: {reason}")]
    Refused {
        /// Called operation.
        operation: &'static str,
        /// Message of the external agent, truncated.
        reason: String,
        /// Whether the same call may succeed later.
        may_pass: bool,
        /// Delay that the external agent requested, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The external agent is unreachable.
    #[error("the external agent is unreachable: {reason}")]
    Unreachable {
        /// Failure of the request.
        reason: String,
    },
    /// It is unknown whether a message was accepted.
    #[error("cannot determine whether the external agent accepted the message: {reason}")]
    FateUnknown {
        /// Event that made the outcome unknown.
        reason: String,
    },
    /// The task of the external agent ended without a result.
    #[error("the task of the external agent ended as {state}{}", said(.text))]
    TaskEnded {
        /// State of the task.
        state: &'static str,
        /// Message of the external agent, truncated; empty if there is none.
        text: String,
    },
    /// Credentials cannot be read, or are rejected.
    #[error("the credentials for the external agent cannot be used: {reason}")]
    Credentials {
        /// Defect of the credentials, without their value.
        reason: String,
    },
    /// The mesh cannot be served.
    #[error(transparent)]
    Mesh(#[from] sinew_mesh::MeshError),
    /// The agent cannot be served.
    #[error("the agent cannot be served: {reason}")]
    Agent {
        /// Code of the SDK.
        code: &'static str,
        /// Failure of the SDK.
        reason: String,
    },
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Truncates untrusted text and removes its control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut clean: String = text.chars().filter(|c| !c.is_control()).take(MAX_QUOTED + 1).collect();
    if clean.chars().count() > MAX_QUOTED {
        clean = clean.chars().take(MAX_QUOTED).collect();
        clean.push('…');
    }
    clean
}

impl BridgeError {
    /// Returns the operator code, explained by `sinew explain CODE`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Setting { .. } => code::BRIDGE_FILE_NOT_VALID.as_str(),
            Self::Card { .. } => code::BRIDGE_CARD_UNUSABLE.as_str(),
            Self::Untrusted { .. } => code::BRIDGE_CARD_NOT_TRUSTED.as_str(),
            Self::Interface { .. } => code::BRIDGE_INTERFACE_UNUSABLE.as_str(),
            Self::Answer { .. } => code::OUTSIDE_ANSWER_NOT_VALID.as_str(),
            Self::Refused { .. } => code::OUTSIDE_AGENT_REFUSED.as_str(),
            Self::Unreachable { .. } => code::OUTSIDE_AGENT_UNREACHABLE.as_str(),
            Self::FateUnknown { .. } => code::OUTSIDE_MESSAGE_FATE_UNKNOWN.as_str(),
            Self::TaskEnded { .. } => code::OUTSIDE_TASK_FAILED.as_str(),
            Self::Credentials { .. } => code::BRIDGE_CREDENTIALS_UNUSABLE.as_str(),
            Self::Mesh(error) => error.code(),
            Self::Agent { code, .. } => code,
        }
    }

    /// Returns the error for a task of this process that panicked.
    pub(crate) fn died(error: &tokio::task::JoinError) -> Self {
        Self::Agent { code: code::AGENT_DIED.as_str(), reason: error.to_string() }
    }

    /// Returns whether the external agent may be available later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Card { may_pass, .. } | Self::Refused { may_pass, .. } => *may_pass,
            // Rejected before any work; the operator may fix the credentials.
            Self::Unreachable { .. } | Self::TaskEnded { .. } | Self::Credentials { .. } => true,
            Self::Mesh(error) => error.is_transient(),
            _ => false,
        }
    }
}

impl From<BridgeError> for Fault {
    fn from(error: BridgeError) -> Self {
        let kind = match &error {
            BridgeError::TaskEnded { .. } => FaultKind::Failure,
            _ => FaultKind::Error,
        };
        let fault = Self::new(kind, error.code(), error.to_string()).with_retryable(error.may_pass());
        match error {
            BridgeError::Refused { retry_after_ms: Some(wait), .. } => fault.with_retry_after_ms(wait),
            _ => fault,
        }
    }
}
