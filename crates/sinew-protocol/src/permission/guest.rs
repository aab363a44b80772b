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

/// Agent in a separate account.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Name of the agent, which is also the name of the user.
    pub name: String,
    /// Credentials of the agent.
    pub login: Login,
    /// Agents and workflows that it may call.
    pub calls: Vec<String>,
}

/// Direction in which messages pass between the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PassageDirection {
    /// The guest publishes; the tenant may respond.
    Said,
    /// The tenant publishes; the guest responds.
    Answered,
    /// The guest subscribes.
    Heard,
}

/// Subject that is exported and imported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GuestPassage {
    pub(super) way: PassageDirection,
    pub(super) subject: String,
    /// Whether a request may have several responses.
    pub(super) many: bool,
    /// Maximum time for a response, in minutes; the default of the server if absent.
    pub(super) minutes: Option<u32>,
}

impl Guest {
    /// Returns the name of the guest's account, derived from that of its tenant.
    pub fn account(&self, tenant: &str) -> String {
        format!("{tenant}-{}", Token::of(&self.name))
    }

    /// Returns the guest's rights in its own account: those of an agent, and its allowed calls.
    pub fn permissions(&self, namespace: &str) -> Permissions {
        let name = Token::of(&self.name);
        let mut rights = Role::Agent.permissions(namespace, &name);
        // Excludes the guest itself: an import and export of the same subject would form a cycle,
        // which servers reject.
        for called in self.calls.iter().filter(|called| Token::of(called) != name) {
            rights = rights.and(Role::calls(namespace, &name, called));
        }
        rights
    }
}

/// Returns the subjects of these rights that pass between the accounts. Subjects about the own
/// account are excluded.
pub(super) fn passages(namespace: &str, rights: &Permissions) -> Vec<GuestPassage> {
    let own = format!("{}.v1.", Token::of(namespace));
    // All processes of a guest run in its own account.
    let stays = |subject: &str| subject.strip_prefix(&own).is_some_and(|rest| rest.starts_with("replica."));
    let said =
        rights.publish.iter().filter(|subject| is_said(&own, subject) && !stays(subject)).map(|subject| {
            let call = subject.strip_prefix(&own).is_some_and(|rest| rest.starts_with("rpc."));
            GuestPassage {
                way: PassageDirection::Said,
                subject: subject.clone(),
                // A request for tasks has many responses, including heartbeats.
                many: subject.starts_with("$JS.API.CONSUMER.MSG.NEXT."),
                minutes: call.then_some(RESPONSE_MINUTES),
            }
        });
    let listens = rights.subscribe.iter().filter(|right| !right.starts_with("_INBOX") && !stays(right));
    let listens = listens.map(|right| match right.split_once(' ') {
        // One replica of the queue group responds.
        Some((subject, _)) => GuestPassage {
            way: PassageDirection::Answered,
            subject: subject.to_owned(),
            many: rights.responses > 1,
            minutes: Some(RESPONSE_MINUTES),
        },
        // Every micro service responds to a discovery request.
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
    // Only calls of a named consumer: a wildcard would include consumers of others.
    (consumer && !call.contains('*') && !call.contains('>'))
        || call == "INFO"
        || ["STREAM.MSG.GET.", "DIRECT.GET."].iter().any(|start| call.starts_with(start))
}
