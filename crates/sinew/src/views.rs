//! What people and programs see of an execution: pure projections of its [`Record`](crate::record::Record).
//!
//! Nothing here reads a clock, a file or the network: `now` is an argument. Each view is a document that serialises,
//! and a text of the same for people.

pub(crate) mod decision;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod list;
pub(crate) mod node_description;
pub(crate) mod replay;
pub(crate) mod retry;
pub(crate) mod scene;
pub(crate) mod tree;
pub(crate) mod waiting;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};
use sinew_engine::{State, Status, WaitingFor};

use crate::exit::Exit;

/// How an execution stands, as a word. Waiting for a person is a status of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// Work goes on
    Running,
    /// A person is waited for, and nothing else goes on
    Waiting,
    /// An operator paused it
    Paused,
    /// It did what it was meant to
    #[value(alias = "succeeded")]
    Success,
    /// It did not
    #[value(alias = "failed")]
    Failure,
    /// Somebody ended it
    Cancelled,
}

impl Standing {
    /// How a folded execution stands.
    pub(crate) fn of(state: &State) -> Self {
        match &state.outcome {
            Some(outcome) if state.ended => match outcome.status {
                Status::Success => Self::Success,
                Status::Failure => Self::Failure,
                Status::Cancelled => Self::Cancelled,
            },
            _ if state.paused.is_some() => Self::Paused,
            _ => {
                let waits = sinew_engine::waiting(state);
                let works = |what: &WaitingFor| {
                    matches!(
                        what,
                        WaitingFor::Agent { .. }
                            | WaitingFor::Evaluation
                            | WaitingFor::Retry { .. }
                            | WaitingFor::Sleep
                    )
                };
                let person = |what: &WaitingFor| matches!(what, WaitingFor::Person(_));
                let idle = !waits.iter().any(|wait| works(&wait.what));
                if idle && waits.iter().any(|wait| person(&wait.what)) {
                    Self::Waiting
                } else {
                    Self::Running
                }
            }
        }
    }

    /// The word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of this word; what is not known goes on, as far as anybody can tell.
    pub(crate) fn parse(word: &str) -> Self {
        let all = [Self::Waiting, Self::Paused, Self::Success, Self::Failure, Self::Cancelled];
        all.into_iter().find(|standing| standing.as_str() == word).unwrap_or(Self::Running)
    }

    /// True if nothing more will happen.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Cancelled)
    }

    /// What a command that follows the execution ends with.
    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Success => Exit::Ok,
            Self::Failure | Self::Cancelled => Exit::Failed,
            Self::Waiting => Exit::Waiting,
            Self::Running | Self::Paused => Exit::TimedOut,
        }
    }

    /// Colour for a terminal.
    pub(crate) const fn color(self) -> &'static str {
        match self {
            Self::Running => "\u{1b}[36m",
            Self::Waiting | Self::Paused => "\u{1b}[33m",
            Self::Success => "\u{1b}[32m",
            Self::Failure => "\u{1b}[31m",
            Self::Cancelled => "\u{1b}[35m",
        }
    }
}
