//! The words on Sinew's wire, and nothing that moves them.
//!
//! Every other crate starts here: deterministic ids, faults and their operator codes, artifact references, A2A shapes,
//! agent cards, mesh messages in both of their vocabularies, tool declarations, and the one table of each kind of name
//! (subjects, streams, headers, environment variables). Values come in as bytes or JSON and leave the same way.
//!
//! It never does I/O, never reads a clock or a random source, and never decides what a workflow does next.

pub mod a2a;
pub mod access;
pub mod artifact;
pub mod behalf;
pub mod canonical_json;
pub mod card;
pub mod command;
pub mod deployment;
pub mod embed;
pub mod env;
pub mod fault;
pub mod header;
pub mod id;
pub mod journal;
pub mod jsonrpc;
pub mod mcp_offer;
pub mod message;
pub mod part;
pub mod permission;
pub mod person_wait;
pub mod push;
pub mod query;
pub mod start;
pub mod stream;
pub mod subject;
pub mod task;
pub mod tool;
pub mod unique_keys;
pub mod usage;
pub mod webhook;

/// Operator codes, each with a constant and a page.
pub use sinew_codes as code;

pub use artifact::{ArtifactMeta, ArtifactName, ArtifactRef, ArtifactUri};
pub use fault::{Fault, FaultKind};
pub use id::{ActivationKey, ExecutionId, ResultKey, ResultToken, TaskId, Token};
pub use message::{MeshMessage, Vocabulary};
pub use subject::Subject;

/// Protobuf messages generated from the repository's `proto/` folder: the journal's and the mesh's own schema.
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/schemas.rs"));
    pub use self::sinew::v1::*;
}
