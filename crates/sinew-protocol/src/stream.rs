//! JetStream streams of the mesh and their required settings. Provisioning applies them, and
//! `doctor` verifies them.

use std::time::Duration;

use crate::card::CARD_TTL;

/// Retention of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Until they are removed explicitly.
    Always,
    /// For this duration.
    For(Duration),
    /// For the duration that the operator configured.
    Configured,
    /// For twice that duration: messages of an open execution are needed as long as its history is
    /// retained, so an execution may be open for the whole retention without data loss.
    TwiceConfigured,
}

/// One stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Name inside one namespace; see [`Stream::name`].
    pub kind: &'static str,
    /// Token after `{ns}.v1.` of the subjects that the stream captures.
    pub subject: &'static str,
    /// Whether a subject accepts only one message (`max_msgs_per_subject` 1, discard new per
    /// subject).
    pub write_once: bool,
    /// Number of messages retained per subject; `-1` for all.
    pub per_subject: i64,
    /// Retention of messages.
    pub keep: Retention,
    /// Purpose of the stream.
    pub purpose: &'static str,
}

/// All streams of a mesh. None allows roll-up headers, because a publisher could purge it with one.
pub const STREAMS: [Stream; 14] = [
    Stream {
        kind: "JOURNAL",
        subject: "journal",
        write_once: false,
        per_subject: -1,
        keep: Retention::Always,
        purpose: "facts of open executions, the source of truth; the owner purges it up to its checkpoints",
    },
    Stream {
        kind: "HISTORY",
        subject: "history",
        // A retried execution is archived again, so the newer record replaces the older one.
        write_once: false,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "complete records of closed executions",
    },
    Stream {
        kind: "COMMANDS",
        subject: "command",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "commands to executions",
    },
    Stream {
        kind: "TASKS",
        subject: "task",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "pending tasks; one durable pull consumer per agent",
    },
    Stream {
        kind: "RESULTS",
        subject: "result",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "results of tasks, read by the owner of the shard",
    },
    Stream {
        kind: "EVENTS",
        subject: "event",
        write_once: false,
        per_subject: -1,
        keep: Retention::Configured,
        purpose: "events, derived from facts",
    },
    Stream {
        kind: "CARDS",
        subject: "card",
        write_once: false,
        per_subject: 1,
        keep: Retention::For(CARD_TTL),
        purpose: "cards of online agents; a card without a heartbeat expires",
    },
    Stream {
        kind: AGENTS,
        subject: "card",
        write_once: false,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "last card of each agent, a mirror of CARDS that keeps offline agents",
    },
    Stream {
        kind: "WORKFLOWS",
        subject: "workflow",
        write_once: false,
        per_subject: 16,
        keep: Retention::Always,
        purpose: "deployed workflows, the last versions of each",
    },
    Stream {
        kind: "QUARANTINE",
        subject: "quarantine",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "quarantined messages, with the reasons",
    },
    Stream {
        kind: STEPS,
        subject: "step",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "steps of tasks; a redelivered task continues after them",
    },
    Stream {
        kind: ACCESS,
        subject: "access",
        write_once: false,
        per_subject: 1,
        keep: Retention::Always,
        purpose: "keys of callers, webhook triggers and shared secrets of gateways",
    },
    Stream {
        kind: PUSHES,
        subject: "push",
        write_once: false,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "push notification configs, with their delivered events",
    },
    Stream {
        kind: ARTIFACTS,
        subject: "artifact",
        write_once: true,
        per_subject: 1,
        keep: Retention::TwiceConfigured,
        purpose: "encrypted pieces of artifacts, large records and large steps",
    },
];

/// Mirror of the stream of cards, which retains the last card of an offline agent.
pub const AGENTS: &str = "AGENTS";

/// Stream of the records of gateways: keys of callers, webhook triggers, shared secrets.
pub const ACCESS: &str = "ACCESS";

/// Stream of webhooks that external programs registered for their tasks.
pub const PUSHES: &str = "PUSHES";

/// Stream of the steps of agents, whose messages may have their own lifetime.
pub const STEPS: &str = "STEPS";

/// Key-value bucket of the executors: heartbeats, owners of shards, settings of the mesh.
pub const FLEET: &str = "FLEET";

/// Keys of [`FLEET`].
pub mod fleet_key {
    /// Settings from provisioning: the number of shards.
    pub const SETTINGS: &str = "settings";
    /// Shared key of the executors for result tokens, 64 hex digits.
    pub const RESULT_KEY: &str = "result_key";

    /// Returns the key of an executor's heartbeat.
    pub fn executor(id: &crate::Token) -> String {
        format!("executor.{id}")
    }

    /// Returns the key of a shard's owner.
    pub fn shard(shard: u32) -> String {
        format!("shard.{shard}")
    }

    /// Returns the key under which the owner of a shard records its work in progress during a
    /// takeover.
    pub fn takeover(shard: u32) -> String {
        format!("takeover.{shard}")
    }
}

/// Stream of artifacts above [`INLINE_LIMIT`], in encrypted pieces.
pub const ARTIFACTS: &str = "ARTIFACTS";

/// Object store for plans; the key is the digest of the plan.
pub const PLANS: &str = "PLANS";

/// Returns the name of a stream or bucket ([`FLEET`], [`PLANS`]) on the server:
/// `{namespace}_{KIND}`.
pub fn bucket(namespace: &str, kind: &str) -> String {
    format!("{}_{kind}", crate::Token::of(namespace))
}

/// Maximum size of an artifact inside a result, in bytes.
pub const INLINE_LIMIT: usize = 64 * 1024;

impl Stream {
    /// Returns whether a message may set its own lifetime, shorter than the retention of the
    /// stream.
    pub fn has_message_ttl(&self) -> bool {
        self.kind == STEPS
    }

    /// Returns the kind of the stream that this one mirrors; `None` if it captures subjects itself.
    pub fn mirrored(&self) -> Option<&'static str> {
        (self.kind == AGENTS).then_some("CARDS")
    }

    /// Returns the name of the stream on the server: `{namespace}_{KIND}`.
    pub fn name(&self, namespace: &str) -> String {
        bucket(namespace, self.kind)
    }

    /// Returns the subjects that the stream captures.
    pub fn subjects(&self, namespace: &str) -> String {
        crate::subject::below(namespace, &[self.subject])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_capture_subjects_that_exist() {
        for stream in STREAMS {
            let begins = format!("{}.", stream.subject);
            assert!(crate::subject::TABLE.iter().any(|(p, _)| p.starts_with(&begins)), "{}", stream.kind);
            assert!(!stream.write_once || stream.per_subject == 1, "{}", stream.kind);
        }
        assert_eq!(STREAMS[3].name("my.mesh"), format!("{}_TASKS", crate::Token::of("my.mesh")));
        assert_eq!(STREAMS[3].subjects("prod"), "prod.v1.task.>");
    }
}
