//! Records of a conversation's log, whose fold is the state of the conversation.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::artifact::sha256;
use sinew_protocol::tool::ToolDeclaration;
use sinew_protocol::usage::ModelTotals;

use crate::text::canonical;
use crate::turn::{ModelRefusal, ModelTurn, TokenUsage};

/// Maximum bytes of a result that compaction keeps, because the replacement text is as long.
const MAX_KEPT_BYTES: usize = 128;

/// A record of a conversation's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The process that wrote it.
    pub by: String,
    /// Time of the write, in milliseconds since the Unix epoch.
    pub at: u64,
    /// Key of the call that started the nested conversation; `None` for the conversation of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Content of the record.
    #[serde(flatten)]
    pub body: StepBody,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepBody {
    /// A process starts or takes over the conversation: first, and at each attempt and redelivery.
    Begin(StartStep),
    /// A model call starts. Written before the call, so that calls interrupted by a crash are counted.
    Ask(AskStep),
    /// The model call failed.
    Miss {
        /// Number of the requested turn.
        turn: u32,
        /// Alias of the called model.
        alias: String,
        /// The reason.
        refusal: ModelRefusal,
    },
    /// The model's answer. Never requested again.
    Turn {
        /// Number of the turn, from 0.
        turn: u32,
        /// The model that answered.
        alias: String,
        /// The answer.
        answer: Box<ModelTurn>,
        /// Price of the call in USD; `None` if the model has no price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
    },
    /// A question to a person about a call is about to be sent.
    Question(CallPosition),
    /// The person's decision about a call.
    Decision {
        /// The call.
        #[serde(flatten)]
        call: CallPosition,
        /// Whether the call is approved.
        approved: bool,
        /// Identity of the person; empty if unknown.
        #[serde(default)]
        by_person: String,
        /// Comment of the person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// A call that must not be made twice is about to be made.
    Call(CallPosition),
    /// The result of a call.
    Done {
        /// The call.
        #[serde(flatten)]
        call: CallPosition,
        /// The result, as the model receives it.
        result: CallResult,
    },
    /// Feedback to the model about an unusable answer.
    Feedback {
        /// Number of the unusable turn.
        turn: u32,
        /// Reason of the feedback.
        reason: FeedbackReason,
        /// The words.
        text: String,
    },
    /// New artifacts of tools in shared storage. Written before the results that name them.
    Artifacts {
        /// The artifacts, oldest first.
        artifacts: Vec<KeptArtifact>,
    },
    /// Old parts of the conversation were compacted.
    Compact(CompactStep),
    /// The conversation is over.
    End(ConversationEnd),
}

/// Start or takeover of the conversation by a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartStep {
    /// Attempt of the activation, from 1.
    pub attempt: u32,
    /// Id of the task.
    pub task: String,
    /// sha256 of the request; a different request never continues this conversation.
    pub request: String,
    /// sha256 of the agent file.
    pub agent: String,
    /// Whether to discard earlier turns. Their tokens and calls still count against the budget.
    #[serde(default)]
    pub reset: bool,
    /// Deliveries of the task by the queue, including this one; 0 without a queue.
    #[serde(default)]
    pub delivery: u64,
    /// Earlier conversations of the session, oldest first; set at the first start and at each reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<SessionTurn>,
}

/// A conversation that has ended, for later ones of its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTurn {
    /// Key of the conversation.
    pub activation: String,
    /// Time of the end, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The user message.
    pub input: String,
    /// The output as text.
    pub output: String,
    /// Whether the conversation contains untrusted text.
    #[serde(default)]
    pub tainted: bool,
}

/// An artifact of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptArtifact {
    /// Name of the artifact.
    pub name: String,
    /// Version within the conversation, from 0.
    pub version: u32,
    /// Media type.
    pub media_type: String,
    /// Address of the bytes.
    pub address: String,
}

/// Start of a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskStep {
    /// Number of the requested turn, from 0.
    pub turn: u32,
    /// The model.
    pub alias: String,
    /// sha256 of the request's bytes.
    pub prompt: String,
    /// Length of the prompt in bytes, to calibrate the token estimate.
    pub bytes: u64,
}

/// Identity of a call: its position. Excludes arguments, because models rephrase them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallPosition {
    /// Number of the turn.
    pub turn: u32,
    /// Number of the call within the turn, from 0.
    pub index: u32,
    /// Key of the call, by which receivers deduplicate.
    pub key: String,
}

/// Result of a call for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Outcome of the call.
    pub status: CallStatus,
    /// Output, or reason of the failure, truncated to the tool's limit.
    pub content: Value,
    /// Address or name of the artifact with the whole output, if `content` is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// Whether the content can contain untrusted text.
    #[serde(default)]
    pub open: bool,
    /// Model calls of the called agent or workflow, including those of its own calls.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub usage: ModelTotals,
    /// Whether a nested conversation made these model calls, within the budget of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// Milliseconds for which a nested conversation waited for people.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_ms: u64,
    /// Tools that the call found, which the model can call from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discovered: Vec<DiscoveredTool>,
}

/// A tool that a search of the conversation found, as it was declared then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscoveredTool {
    /// Name of the agent or workflow.
    pub agent: String,
    /// Index of the rule in [`ConversationSpec::discover_rules`](crate::ConversationSpec) that admits
    /// it.
    pub rule: u32,
    /// sha256 of the declaration's canonical JSON. A tool that was declared anew is not called.
    pub digest: String,
    /// The declaration.
    pub declaration: ToolDeclaration,
}

impl DiscoveredTool {
    /// Creates a discovered tool.
    pub fn new(agent: impl Into<String>, rule: u32, declaration: ToolDeclaration) -> Self {
        let text = serde_json::to_value(&declaration).map(|value| canonical(&value)).unwrap_or_default();
        Self { agent: agent.into(), rule, digest: sha256(text.as_bytes()), declaration }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CallResult {
    /// Creates a result without model calls.
    pub fn new(status: CallStatus, content: impl Into<Value>) -> Self {
        Self {
            status,
            content: content.into(),
            artifact: None,
            open: false,
            usage: ModelTotals::default(),
            nested: false,
            waited_ms: 0,
            discovered: Vec::new(),
        }
    }

    /// Returns whether omitting the content saves space.
    pub(crate) fn may_give_way(&self) -> bool {
        self.status == CallStatus::Succeeded
            && (self.artifact.is_some() || self.content.to_string().len() > MAX_KEPT_BYTES)
    }

    /// Returns whether the content is untrusted. Failures contain text of the tool too.
    pub(crate) fn holds_words_of_others(&self) -> bool {
        let is_told = matches!(self.status, CallStatus::Succeeded | CallStatus::Failed | CallStatus::Unknown);
        self.open && is_told
    }
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// The tool returned an output.
    Succeeded,
    /// The tool failed.
    Failed,
    /// The call was not made: the tool is unknown, or the arguments do not fit.
    Invalid,
    /// The call was not made, because of a limit, the loop guard, the taint rule or a person.
    Refused,
    /// The process stopped during the call, or its answer was lost: it may have taken effect.
    Unknown,
}

/// Reason of feedback to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackReason {
    /// The output does not fit its schema; counts as a repair.
    Repair,
    /// The answer was truncated at the limit of output tokens, and is requested with a higher limit.
    CutOff,
    /// The work is complete, and the output is requested in its form.
    Form,
}

/// Compaction of old parts of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactStep {
    /// Turns before this one are compacted.
    pub before: u32,
    /// Their summary; `None` if only the results of their calls are omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Omitted results that are stored as artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedResult>,
    /// Tokens of the summary's model call.
    #[serde(default)]
    pub usage: TokenUsage,
    /// Price of the summary's model call in USD; `None` if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// A result of a call that was moved to an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedResult {
    /// Number of the turn.
    pub turn: u32,
    /// Number of the call within the turn, from 0.
    pub index: u32,
    /// Name and version of the artifact.
    pub artifact: String,
}

/// The end of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEnd {
    /// The output, valid against its schema.
    Output(Value),
    /// Name and version of the artifact that is the output.
    Artifact(String),
    /// The reason why the conversation has no output.
    Fault(Fault),
}
