//! People whom a conversation may ask.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_protocol::Fault;

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonPrompt {
    /// The question, in words.
    pub text: String,
    /// Tool and exact arguments of the call that is asked about; null for a question in words.
    pub call: Value,
    /// People who may answer; all if empty.
    pub people: Vec<String>,
    /// Time for the answer.
    pub timeout: Duration,
    /// Key of the question: the same for a repeated one.
    pub key: String,
}

/// A person's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonReply {
    /// Whether the call may be made; for a question in words, whether there is an answer.
    pub approved: bool,
    /// Identity of the person; empty if unknown.
    pub by_person: String,
    /// The answer in words, or a comment.
    pub comment: Option<String>,
}

/// The people who can be asked.
pub trait People: Send + Sync {
    /// Asks and waits for the answer; without an answer in time the reply is a refusal. Fails if the question cannot be put
    /// or its answer not be heard now; a repeated question of the same key is the same one.
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>>;
}

/// A place without people: every question is refused.
pub(crate) struct NoPeople;

impl People for NoPeople {
    fn ask(&self, _: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        let comment = Some("no person can be asked here".to_owned());
        std::future::ready(Ok(PersonReply { approved: false, by_person: String::new(), comment })).boxed()
    }
}
