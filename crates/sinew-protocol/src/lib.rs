//! The data types of Sinew's wire protocol, without transport.
//!
//! All other crates depend on it: deterministic ids, faults and their operator codes, artifact
//! references, A2A types, agent cards, mesh messages in both vocabularies, tool declarations, and
//! one table for each kind of name (subjects, streams, headers, environment variables). Values are
//! read from and written to bytes or JSON.
//!
//! This crate never performs I/O, reads a clock or a random source, or decides what a workflow does
//! next.

pub mod a2a;
pub mod access;
pub mod artifact;
pub mod attributes;
pub mod behalf;
pub mod canonical_json;
pub mod card;
pub mod catalogue;
pub mod catalogue_record;
pub mod command;
pub mod decision;
pub mod deployment;
pub mod embed;
pub mod env;
pub mod event_stream;
pub mod fault;
pub mod header;
pub mod id;
pub mod journal;
pub mod jsonrpc;
pub mod label_names;
pub mod mcp_offer;
pub mod message;
pub mod origin;
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

/// Protobuf messages generated from the repository's `proto/` folder: journal and mesh schemas.
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/schemas.rs"));
    pub use self::sinew::v1::*;
}
