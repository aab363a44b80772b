//! Messages of attackers: malformed or ambiguous header blocks and subjects, on all subjects to which
//! their role can publish.

use sinew_protocol::ExecutionId;

/// Malformed header blocks.
const BLOCKS: [&[u8]; 16] = [
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nGood: 1\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nA b: c\r\n\r\n",
    b"NATS/1.0\r\n folded: first\r\n\r\n",
    b"NATS/1.0\r\n\xc3\xa4: c\r\n\r\n",
    b"NATS/1.0\r\nA\x00: c\r\n\r\n",
    b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\n\x80\r\n\r\n",
    b"NATS/1.0 5\r\n\r\n",
    b"NATS/1.0 abc\r\n\r\n",
    b"NATS/1.0 099 x\r\n\r\n",
    b"NATS/2.0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"\r\n\r\n",
    b"\x00\x01\x02\x03",
    // The NATS client library panics on this one.
    b"NATS/1.0\r\nA: b\rc\r\n\r\n",
];
const GOOD_BLOCK: &[u8] = b"NATS/1.0\r\nA: b\r\n\r\n";
/// Last tokens of subjects that are not text, or contain white space.
const TOKENS: [&[u8]; 4] = [b"\xff", b"x\x0b7", b"\xe2\x80\x837", b"\xc3"];
const BODIES: [&[u8]; 3] = [b"", b"\x00\xff", b"{}"];

/// An attacker, with its stolen or granted credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attacker {
    /// A client of the mesh.
    Client,
    /// An agent of the mesh.
    Agent,
    /// An agent in a separate account.
    Guest,
    /// Credentials of an executor and of an administrator.
    Thief,
    /// Executor, administrator, client and agent of another tenant.
    OtherTenant,
}

impl Attacker {
    pub(super) const ALL: [Self; 5] =
        [Self::Client, Self::Agent, Self::Guest, Self::Thief, Self::OtherTenant];

    /// Returns the name of the user.
    pub(super) const fn user(self) -> &'static str {
        match self {
            Self::Client => "vandal",
            Self::Agent => "rogue",
            Self::Guest => "stranger",
            Self::Thief => "thief",
            Self::OtherTenant => "neighbour",
        }
    }

    /// Returns whether the server refuses all messages of the attacker.
    pub(super) const fn is_kept_out(self) -> bool {
        matches!(self, Self::OtherTenant)
    }

    /// Returns subjects, without the last token, to which the attacker can publish; for the other
    /// tenant those of all others.
    fn subjects(self, shard: u32, ghost: &ExecutionId, fresh: &mut impl FnMut() -> String) -> Vec<String> {
        let user = self.user();
        match self {
            Self::Client => vec![
                format!("chaos.v1.command.{shard}.start.{user}"),
                format!("chaos.v1.command.{shard}.cancel.{user}"),
                "chaos.v1.rpc.gamma.SendMessage".to_owned(),
                "chaos.v1.rpc.journey.SendMessage".to_owned(),
                "chaos.v1.query".to_owned(),
            ],
            Self::Agent | Self::Guest => vec![
                format!("chaos.v1.result.{shard}.{user}.{ghost}.{}", fresh()),
                "chaos.v1.card".to_owned(),
                format!("chaos.v1.progress.{ghost}"),
                format!("chaos.v1.replica.{user}"),
                "chaos.v1.quarantine.TASKS".to_owned(),
                "chaos.v1.artifact.group".to_owned(),
            ],
            Self::Thief => vec![
                format!("chaos.v1.event.journey.{ghost}"),
                "chaos.v1.history".to_owned(),
                "chaos.v1.journal".to_owned(),
                "chaos.v1.control.alpha".to_owned(),
                "chaos.v1.workflow".to_owned(),
                format!("chaos.v1.task.alpha.{ghost}"),
                "$KV.chaos_FLEET.owner".to_owned(),
                "$O.chaos_PLANS.M".to_owned(),
            ],
            Self::OtherTenant => {
                // Guests publish to the subjects of agents.
                let others = [Self::Client, Self::Agent, Self::Thief].into_iter();
                others.flat_map(|other| other.subjects(shard, ghost, fresh)).collect()
            }
        }
    }

    /// Returns API calls that would list, read or delete artifacts of other executions. The server rejects them.
    pub(super) const fn calls_on_artifacts(self) -> &'static [&'static str] {
        match self {
            Self::Agent | Self::Guest => &[
                "$JS.API.DIRECT.GET.chaos_ARTIFACTS",
                "$JS.API.DIRECT.GET.chaos_ARTIFACTS.chaos.v1.artifact.>",
                "$JS.API.DIRECT.GET.OBJ_chaos_ARTIFACTS",
                "$JS.API.STREAM.MSG.GET.chaos_ARTIFACTS",
                "$JS.API.STREAM.MSG.DELETE.chaos_ARTIFACTS",
                "$JS.API.STREAM.PURGE.chaos_ARTIFACTS",
                "$JS.API.CONSUMER.CREATE.chaos_ARTIFACTS.c.chaos.v1.artifact.>",
            ],
            _ => &[],
        }
    }

    /// Returns all messages of a round: subject, headers, body.
    pub(super) fn messages(
        self,
        shard: u32,
        ghost: &ExecutionId,
        fresh: &mut impl FnMut() -> String,
    ) -> Vec<(Vec<u8>, &'static [u8], &'static [u8])> {
        let mut messages = Vec::new();
        for subject in self.subjects(shard, ghost, fresh) {
            for (nth, block) in BLOCKS.iter().enumerate() {
                let subject = format!("{subject}.{}", self.last_token(&subject, shard, fresh));
                messages.push((subject.into_bytes(), *block, BODIES[nth % BODIES.len()]));
            }
            // The last token of these subjects is the user's name, which the server checks.
            if self.is_kept_out() || !(subject.contains(".card") || subject.contains(".rpc.")) {
                let with = |token: &&[u8]| [subject.as_bytes(), b".", token].concat();
                messages.extend(TOKENS.iter().map(|token| (with(token), GOOD_BLOCK, b"{}".as_slice())));
            }
        }
        messages
    }

    /// Returns a last token with which a process receives the subject.
    fn last_token(self, subject: &str, shard: u32, fresh: &mut impl FnMut() -> String) -> String {
        match subject.split('.').nth(2).unwrap_or_default() {
            "card" | "rpc" => self.user().to_owned(),
            "query" | "journal" => shard.to_string(),
            "quarantine" => (1_000_000 + u64::from_str_radix(&fresh(), 16).unwrap_or_default()).to_string(),
            "history" => ExecutionId::of("chaos", self.user(), &fresh()).to_string(),
            _ => fresh(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_attacker_sends_every_block_and_nothing_twice() {
        let ghost = ExecutionId::of("chaos", "vandal", "ghost");
        let mut number = 0;
        let mut fresh = || {
            number += 1;
            format!("{number:032x}")
        };
        for attacker in Attacker::ALL {
            let messages = attacker.messages(1, &ghost, &mut fresh);
            assert!(messages.len() >= 90, "{attacker:?}: {}", messages.len());
            let blocks: BTreeSet<&[u8]> = messages.iter().map(|(_, block, _)| *block).collect();
            assert_eq!(blocks.len(), BLOCKS.len() + 1, "{attacker:?}");
            let different: BTreeSet<_> = messages.iter().collect();
            assert_eq!(different.len(), messages.len(), "{attacker:?}");
        }
    }
}
