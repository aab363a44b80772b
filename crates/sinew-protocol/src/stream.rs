//! The JetStream streams of the mesh and their required settings; provisioning writes them,
//! `doctor` compares them.

use std::time::Duration;

use crate::card::CARD_TTL;

/// How long messages stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Until they are removed on purpose.
    Always,
    /// This long.
    For(Duration),
    /// As long as the operator says.
    Configured,
    /// Twice as long: what is stored while an execution is open is needed as long as its history is kept, so an execution may
    /// be open as long as the retention without a loss.
    TwiceConfigured,
}

/// One stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The name inside one namespace; see [`Stream::name`].
    pub kind: &'static str,
    /// The token after `{ns}.v1.` of the subjects it captures.
    pub subject: &'static str,
    /// Whether a subject takes one message ever (`max_msgs_per_subject` 1, discard new per subject).
    pub write_once: bool,
    /// The number of messages kept per subject; `-1` for all.
    pub per_subject: i64,
    /// How long messages stay.
    pub keep: Retention,
    /// Purpose of the stream.
    pub purpose: &'static str,
}

/// Every stream of a mesh. None allows roll-up headers: a publisher could empty it with one.
pub const STREAMS: [Stream; 14] = [
    Stream {
        kind: "JOURNAL",
        subject: "journal",
        write_once: false,
        per_subject: -1,
        keep: Retention::Always,
        purpose: "the facts of open executions, the source of truth; purged below checkpoints by the owner",
    },
    Stream {
        kind: "HISTORY",
        subject: "history",
        // A retried execution is archived again, so the newer record takes the older one's place.
        write_once: false,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "closed executions, complete",
    },
    Stream {
        kind: "COMMANDS",
        subject: "command",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "what was asked of executions",
    },
    Stream {
        kind: "TASKS",
        subject: "task",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "tasks that wait for an agent; one durable pull consumer per agent",
    },
    Stream {
        kind: "RESULTS",
        subject: "result",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "results that survive the executor; read by the shard's owner",
    },
    Stream {
        kind: "EVENTS",
        subject: "event",
        write_once: false,
        per_subject: -1,
        keep: Retention::Configured,
        purpose: "what operators see; derived from facts",
    },
    Stream {
        kind: "CARDS",
        subject: "card",
        write_once: false,
        per_subject: 1,
        keep: Retention::For(CARD_TTL),
        purpose: "who is there; absence means gone",
    },
    Stream {
        kind: AGENTS,
        subject: "card",
        write_once: false,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "last card of each agent, so that those that are offline stay listed; a mirror of CARDS",
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
        purpose: "what could not be read, with the reason",
    },
    Stream {
        kind: STEPS,
        subject: "step",
        write_once: true,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "steps that agents have done within their tasks; a task that comes again goes on behind them",
    },
    Stream {
        kind: ACCESS,
        subject: "access",
        write_once: false,
        per_subject: 1,
        keep: Retention::Always,
        purpose: "keys of programs and people, webhook triggers and shared secrets of gateways",
    },
    Stream {
        kind: PUSHES,
        subject: "push",
        write_once: false,
        per_subject: 1,
        keep: Retention::Configured,
        purpose: "webhooks that hear of tasks, with what was delivered",
    },
    Stream {
        kind: ARTIFACTS,
        subject: "artifact",
        write_once: true,
        per_subject: 1,
        keep: Retention::TwiceConfigured,
        purpose: "sealed pieces of artifacts, large records and large steps",
    },
];

/// The mirror of the stream of cards, which keeps the last card of an agent that is offline.
pub const AGENTS: &str = "AGENTS";

/// The stream of the records of gateways: who may call, what starts executions, shared secrets.
pub const ACCESS: &str = "ACCESS";

/// The stream of webhooks that programs outside left for their tasks.
pub const PUSHES: &str = "PUSHES";

/// The stream of the steps of agents, whose messages may have a lifetime of their own.
pub const STEPS: &str = "STEPS";

/// The key-value bucket of the executors: who lives, who owns which shard, the settings of the mesh.
pub const FLEET: &str = "FLEET";

/// Keys of [`FLEET`].
pub mod fleet_key {
    /// Settings made at provisioning: the number of shards.
    pub const SETTINGS: &str = "settings";
    /// The executors' shared key for result tokens, 64 hex digits.
    pub const RESULT_KEY: &str = "result_key";

    /// The heartbeat of an executor.
    pub fn executor(id: &crate::Token) -> String {
        format!("executor.{id}")
    }

    /// The owner of a shard.
    pub fn shard(shard: u32) -> String {
        format!("shard.{shard}")
    }

    /// Returns the key under which the owner of a shard notes the work in hand while it catches up after a takeover.
    pub fn takeover(shard: u32) -> String {
        format!("takeover.{shard}")
    }
}

/// The stream of artifacts above [`INLINE_LIMIT`], in sealed pieces.
pub const ARTIFACTS: &str = "ARTIFACTS";

/// The object store for plans; the key is the plan's digest.
pub const PLANS: &str = "PLANS";

/// The name of a stream or bucket ([`FLEET`], [`PLANS`]) on the server: `{namespace}_{KIND}`.
pub fn bucket(namespace: &str, kind: &str) -> String {
    format!("{}_{kind}", crate::Token::of(namespace))
}

/// The largest artifact that travels inside the result that made it, in bytes.
pub const INLINE_LIMIT: usize = 64 * 1024;

impl Stream {
    /// Whether a message may name the time after which it goes, shorter than that of the stream.
    pub fn has_message_ttl(&self) -> bool {
        self.kind == STEPS
    }

    /// Kind of the stream whose messages the server copies into this one; `None` if it captures subjects itself.
    pub fn mirrored(&self) -> Option<&'static str> {
        (self.kind == AGENTS).then_some("CARDS")
    }

    /// The stream's name on the server: `{namespace}_{KIND}`.
    pub fn name(&self, namespace: &str) -> String {
        bucket(namespace, self.kind)
    }

    /// The subjects it captures.
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
