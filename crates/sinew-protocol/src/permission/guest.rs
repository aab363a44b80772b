//! Guests: an untrusted agent has its own account, and its tenant exports single subjects to it.
//!
//! A server answers a read to any requested reply subject, and treats an empty answer as a call. If
//! a guest requests this, the server publishes in the guest's account, which has no streams. The
//! exports are therefore the rights of [`Role::Agent`], each in the form that its kind requires,
//! and only reads of the server's API: a new right in the table that creates, changes or removes
//! something is not exported automatically.

use super::render::Login;
use super::{OWN_RIGHTS, Permissions, RESPONSE_MINUTES, Role};
use crate::Token;

/// An agent in an account of its own.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The agent's name, which is the user's.
    pub name: String,
    /// How it proves to be that.
    pub login: Login,
    /// The agents and workflows that it may call.
    pub calls: Vec<String>,
}

/// Which way a subject passes between the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PassageDirection {
    /// The guest says it, and hears what is answered.
    Said,
    /// The tenant says it, and hears what the guest answers.
    Answered,
    /// The guest hears it.
    Heard,
}

/// A subject that passes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GuestPassage {
    pub(super) way: PassageDirection,
    pub(super) subject: String,
    /// Whether there may be several answers.
    pub(super) many: bool,
    /// How long an answer may take, in minutes; as long as the server finds right when absent.
    pub(super) minutes: Option<u32>,
}

impl Guest {
    /// The name of its account, beside that of its tenant.
    pub fn account(&self, tenant: &str) -> String {
        format!("{tenant}-{}", Token::of(&self.name))
    }

    /// Returns the guest's rights in its own account: those of an agent, and calls to the agents that it may call.
    pub fn permissions(&self, namespace: &str) -> Permissions {
        let name = Token::of(&self.name);
        let mut rights = Role::Agent.permissions(namespace, &name);
        // Not itself: what is said on both sides would go round in a circle, which servers refuse.
        for called in self.calls.iter().filter(|called| Token::of(called) != name) {
            rights = rights.and(Role::calls(namespace, &name, called));
        }
        rights
    }
}

/// The subjects of these rights that pass; those about the own account stay in it.
pub(super) fn passages(namespace: &str, rights: &Permissions) -> Vec<GuestPassage> {
    let own = format!("{}.v1.", Token::of(namespace));
    // All processes of a guest are in its own account.
    let stays = |subject: &str| subject.strip_prefix(&own).is_some_and(|rest| rest.starts_with("replica."));
    let said =
        rights.publish.iter().filter(|subject| is_said(&own, subject) && !stays(subject)).map(|subject| {
            let call = subject.strip_prefix(&own).is_some_and(|rest| rest.starts_with("rpc."));
            GuestPassage {
                way: PassageDirection::Said,
                subject: subject.clone(),
                // One request for tasks is answered with many, and with signs of life.
                many: subject.starts_with("$JS.API.CONSUMER.MSG.NEXT."),
                minutes: call.then_some(RESPONSE_MINUTES),
            }
        });
    let listens = rights.subscribe.iter().filter(|right| !right.starts_with("_INBOX") && !stays(right));
    let listens = listens.map(|right| match right.split_once(' ') {
        // Replicas that share what is asked answer it, one of them.
        Some((subject, _)) => GuestPassage {
            way: PassageDirection::Answered,
            subject: subject.to_owned(),
            many: rights.responses > 1,
            minutes: Some(RESPONSE_MINUTES),
        },
        // Questions after micro services are answered by each.
        None if right.starts_with("$SRV.") => GuestPassage {
            way: PassageDirection::Answered,
            subject: right.clone(),
            many: true,
            minutes: None,
        },
        None => {
            GuestPassage { way: PassageDirection::Heard, subject: right.clone(), many: false, minutes: None }
        }
    });
    said.chain(listens).collect()
}

fn is_said(own: &str, subject: &str) -> bool {
    if subject == OWN_RIGHTS {
        return false;
    }
    let Some(call) = subject.strip_prefix("$JS.API.") else {
        return [own, "$JS.ACK.", "$O."].iter().any(|start| subject.starts_with(start));
    };
    let consumer = ["CONSUMER.INFO.", "CONSUMER.MSG.NEXT."].iter().any(|start| call.starts_with(start));
    // A consumer that is not named is somebody else's.
    (consumer && !call.contains('*') && !call.contains('>'))
        || call == "INFO"
        || ["STREAM.MSG.GET.", "DIRECT.GET."].iter().any(|start| call.starts_with(start))
}
