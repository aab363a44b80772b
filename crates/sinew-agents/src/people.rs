//! People to whom a conversation can send questions.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_protocol::Fault;

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonPrompt {
    /// Text of the question.
    pub text: String,
    /// Tool and exact arguments of the call to approve; null for a question.
    pub call: Value,
    /// People who can answer; all if empty.
    pub people: Vec<String>,
    /// Time limit for the answer.
    pub timeout: Duration,
    /// Key of the question, identical for its repetitions.
    pub key: String,
}

/// A person's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonReply {
    /// Whether the call is approved; for a question, whether the person answered.
    pub approved: bool,
    /// Identity of the person; empty if unknown.
    pub by_person: String,
    /// Answer to a question, or a comment.
    pub comment: Option<String>,
}

/// The people who can receive questions.
pub trait People: Send + Sync {
    /// Sends a question and waits for the answer; a timeout is a refusal. Fails if the question cannot
    /// be sent or its answer cannot be received. Questions with the same key are one question.
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>>;
}

/// An environment without people: refuses each question.
pub(crate) struct NoPeople;

impl People for NoPeople {
    fn ask(&self, _: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        let comment = Some("no person is available here".to_owned());
        std::future::ready(Ok(PersonReply { approved: false, by_person: String::new(), comment })).boxed()
    }
}
