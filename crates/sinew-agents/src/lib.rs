//! Loads and runs agents that files define.
//!
//! Place in the data flow: a shell turns a task into a [`Call`], and the [`Agent`] returns a [`Reply`]
//! or a [`Fault`](sinew_protocol::Fault). An agent is a Python function in a sandbox (`script`), a
//! program (`command`), an HTTP request (`http`), a tool of an MCP server (`mcp`) or a conversation
//! with a language model (`model`). It stores artifacts in [`Artifacts`]: in embedded runs, an
//! [`ArtifactFolder`].
//!
//! It never retries a call (except HTTP attempts within one call), never substitutes another agent,
//! never runs a shell, never inserts data into code, and never reveals a secret.
//!
//! ```yaml
//! # agent-cards/greeter.agent.yaml
//! name: greeter
//! description: Greets a person.
//! input_schema: {type: object, required: [name], properties: {name: {type: string}}}
//! run:
//!   http:
//!     url: https://greet.example/v1/{{input.name}}
//!     method: GET
//!     headers: {Authorization: "Bearer ${env:GREET_TOKEN}"}
//!     retry: {limit: 3}
//! ```

mod agent;
mod artifacts;
mod call;
mod clean;
mod complaint;
mod conversation_recording;
mod error;
mod file;
mod file_time;
mod host_tools;
mod load;
mod local_peers;
mod mcp_file;
mod model_file;
mod named_files;
mod offer_file;
mod peers;
mod people;
mod reach;
mod rejection;
mod run;
mod schema_slip;
mod sessions;
mod set;
mod steps;
mod template;
mod wait_clock;
mod web_client;
mod web_exchange;

pub use agent::Agent;
pub use artifacts::{ArtifactFolder, ArtifactLimits, Artifacts, media_type};
pub use call::{Call, Reply};
pub use clean::ResolvedSecrets;
pub use conversation_recording::ConversationRecording;
pub use error::{AgentError, ArtifactError};
pub use file::agent_file_schema;
pub use file_time::Time as FileTime;
pub use host_tools::{HostTool, HostTools};
pub use local_peers::LocalPeers;
pub use peers::{PeerAnswer, PeerCall, PeerDescription, Peers};
pub use people::{People, PersonPrompt, PersonReply};
pub use reach::AgentReach;
pub use run::{
    AgentCase, AgentTools, CaseOutcome, LackingTool, ModelDescription, ModelPong, PinnedTool, ToolPin,
    ToolStubs, fetch, remove_stale_task_folders,
};
pub use sessions::{MemorySession, Sessions};
pub use set::AgentSet;
pub use sinew_model::rehearsal::StubAnswer;
pub use sinew_model::{
    CallStatus, ConversationEnd, EffectClass, KeptArtifact, SessionTurn, StepBody, StepRecord,
};
pub use sinew_protocol::{ArtifactMeta, ArtifactRef};
pub use steps::{MemorySteps, StepAppend, Steps};
pub use template::Environment;
pub use tokio_util::sync::CancellationToken;
pub use wait_clock::{StoppedWaitClock, WaitClock};
pub use web_client::{ReachableAddresses, WebAnswer, WebClient};
pub use web_exchange::{WebFailure, WebIdentity, WebMethod, WebRequest, WebResponse};
