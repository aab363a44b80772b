//! Declared capabilities of a client.

#![expect(deprecated, reason = "clients of today lend their models, name folders and read logs")]

use rmcp::model::{
    ClientCapabilities, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationCapability,
    ErrorData, InputRequest, ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, ProtocolVersion,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::Value;
use sinew_protocol::mcp_offer::{ClientAbility, McpOffer, TaskSupport};

/// Client capabilities that determine how a call is answered.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own in the protocol")]
pub(super) struct ClientAbilities {
    /// Its user fills in forms (elicitation).
    pub(super) elicits: bool,
    /// It provides its language model (sampling).
    pub(super) samples: bool,
    /// It lists its user's folders (roots).
    pub(super) lists_roots: bool,
    /// It stores the ids of tasks and polls the tasks.
    pub(super) keeps_tasks: bool,
    /// It repeats a call with its user's answers; older clients are asked while the call waits.
    pub(super) repeats_with_answers: bool,
}

impl ClientAbilities {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let version = context.protocol_version();
        let abilities = context.client_capabilities().unwrap_or_default();
        let has_forms = |it: &ElicitationCapability| it.form.is_some() || it.url.is_none();
        Self {
            elicits: abilities.elicitation.as_ref().is_some_and(has_forms),
            samples: abilities.sampling.is_some(),
            lists_roots: abilities.roots.is_some(),
            keeps_tasks: abilities.supports_tasks(),
            repeats_with_answers: version
                .is_some_and(|it| it.as_str() >= ProtocolVersion::V_2026_07_28.as_str()),
        }
    }

    /// Returns whether the client supports a request. Requests to open an agent's address are never
    /// passed on.
    pub(super) fn does(self, request: &InputRequest) -> bool {
        match request {
            InputRequest::Elicitation(request) => {
                self.elicits && matches!(request.params, ElicitRequestParams::FormElicitationParams { .. })
            }
            InputRequest::CreateMessage(_) => self.samples,
            InputRequest::ListRoots(_) => self.lists_roots,
            _ => false,
        }
    }

    fn has(self, ability: ClientAbility) -> bool {
        match ability {
            ClientAbility::Elicitation => self.elicits,
            ClientAbility::Sampling => self.samples,
            ClientAbility::Roots => self.lists_roots,
        }
    }

    /// Rejects a client without the capabilities that an offer needs.
    pub(super) fn check(self, offer: &McpOffer) -> Result<(), ErrorData> {
        let mut missing = ClientCapabilities::default();
        for ability in offer.needs.iter().filter(|ability| !self.has(**ability)) {
            match ability {
                ClientAbility::Elicitation => missing.elicitation = Some(ElicitationCapability::default()),
                ClientAbility::Sampling => {
                    missing.sampling = Some(rmcp::model::SamplingCapability::default());
                }
                ClientAbility::Roots => missing.roots = Some(rmcp::model::RootsCapabilities::default()),
            }
        }
        if offer.tasks == TaskSupport::Required && !self.keeps_tasks {
            missing.extensions = ClientCapabilities::builder().enable_tasks().build().extensions;
        }
        if missing == ClientCapabilities::default() {
            return Ok(());
        }
        Err(ErrorData::missing_required_client_capability(missing))
    }
}

/// Returns whether a client's response matches this request.
pub(super) fn is_answer_to(request: &InputRequest, answer: &Value) -> bool {
    use serde::Deserialize as _;
    match request {
        InputRequest::Elicitation(_) => ElicitResult::deserialize(answer).is_ok(),
        InputRequest::CreateMessage(_) => CreateMessageResult::deserialize(answer).is_ok(),
        InputRequest::ListRoots(_) => ListRootsResult::deserialize(answer).is_ok(),
        _ => false,
    }
}

/// Severity of a message, and the minimum severity that a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogSeverity {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogSeverity {
    /// Returns the minimum severity that a request asks for.
    pub(super) fn of_request(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.meta.log_level().map(Self::from)
    }

    fn level(self) -> LoggingLevel {
        match self {
            Self::Debug => LoggingLevel::Debug,
            Self::Info => LoggingLevel::Info,
            Self::Notice => LoggingLevel::Notice,
            Self::Warning => LoggingLevel::Warning,
            Self::Error => LoggingLevel::Error,
            Self::Critical => LoggingLevel::Critical,
            Self::Alert => LoggingLevel::Alert,
            Self::Emergency => LoggingLevel::Emergency,
        }
    }
}

impl From<LoggingLevel> for LogSeverity {
    fn from(level: LoggingLevel) -> Self {
        match level {
            LoggingLevel::Debug => Self::Debug,
            LoggingLevel::Info => Self::Info,
            LoggingLevel::Notice => Self::Notice,
            LoggingLevel::Warning => Self::Warning,
            LoggingLevel::Error => Self::Error,
            LoggingLevel::Critical => Self::Critical,
            LoggingLevel::Alert => Self::Alert,
            LoggingLevel::Emergency => Self::Emergency,
        }
    }
}

/// Sends an agent's log message to a client.
pub(super) async fn tell_log(peer: &Peer<RoleServer>, agent: &str, severity: LogSeverity, text: &str) {
    let message = LoggingMessageNotificationParam::new(severity.level(), text.into()).with_logger(agent);
    // A disconnected client reads no logs.
    let _ = peer.notify_logging_message(message).await;
}
