//! Message headers that the mesh reads and writes. `Nats-*` headers are commands to the server: all
//! except [`MESSAGE_ID`] are stripped from incoming messages.

/// Media type of the body: [`JSON`] when absent.
pub const CONTENT_TYPE: &str = "Content-Type";
/// A body in JSON, the default.
pub const JSON: &str = "application/json";
/// A body in protobuf, answered in protobuf.
pub const PROTOBUF: &str = "application/protobuf";
/// A2A's version, `Major.Minor`; absent means 0.3.
pub const A2A_VERSION: &str = crate::a2a::A2A_VERSION_HEADER;
/// The A2A extensions a caller wants, comma-separated URIs.
pub const A2A_EXTENSIONS: &str = crate::a2a::A2A_EXTENSIONS_HEADER;
/// W3C trace context.
pub const TRACE_PARENT: &str = "traceparent";
/// The idempotency key of a message.
pub const MESSAGE_ID: &str = "Nats-Msg-Id";
/// How many workflows called each other before this one, for peers that have no journal; a hint, never the limit.
pub const CALL_DEPTH: &str = "Sinew-Call-Depth";
/// Key by which agents recognise repeated effects: the same for all attempts of an activation.
pub const ACTIVATION: &str = "Sinew-Activation";
/// The attempt, counted from 1.
pub const ATTEMPT: &str = "Sinew-Attempt";
/// When the answer must be there, milliseconds since 1970 UTC.
pub const DEADLINE: &str = "Sinew-Deadline";
/// The subject that a task's result goes to.
pub const RESULT_SUBJECT: &str = "Sinew-Result-Subject";
/// sha256 of the body, lower-case hex.
pub const BODY_HASH: &str = "Sinew-Body-Hash";
/// Which part of how many this message is, `i/n` counted from 1; absent means 1/1.
pub const PART: &str = "Sinew-Part";
/// The id of a journal commit, by which a writer knows its own again.
pub const COMMIT: &str = "Sinew-Commit";
/// The object of the artifact store that holds the body, when the message is empty.
pub const OBJECT: &str = "Sinew-Object";
/// Where in its execution an event lies, `round.index`.
pub const SEQ: &str = "Sinew-Seq";
/// The workflow's name, percent-encoded.
pub const WORKFLOW: &str = "Sinew-Workflow";
/// How an execution ended.
pub const STATUS: &str = "Sinew-Status";
/// When an execution began, milliseconds since 1970 UTC.
pub const STARTED: &str = "Sinew-Started";
/// When an execution ended, milliseconds since 1970 UTC.
pub const ENDED: &str = "Sinew-Ended";
/// Caller who started an execution, or whose call another process of an agent passes on.
pub const CALLER: &str = "Sinew-Caller";
/// How many rounds and verdicts the record of an execution has; a record never takes the place of one with more.
pub const ENTRIES: &str = "Sinew-Entries";
/// Model calls behind an execution as JSON: turns, calls of tools, tokens, price. Absent if no model was asked.
pub const USAGE: &str = "Sinew-Usage";
/// Operator code of the fault by which an execution ended, percent-encoded. Absent if it ended without one.
pub const FAULT: &str = "Sinew-Fault";
/// Digest of the plan that an execution ran. Absent in records of older releases.
pub const PLAN: &str = "Sinew-Plan";
/// `true` if an execution called no agent and took every output as null. Absent otherwise.
pub const DRY_RUN: &str = "Sinew-Dry-Run";
/// Why a message lies in quarantine, percent-encoded.
pub const REASON: &str = "Sinew-Reason";
/// The subject a message in quarantine came on.
pub const SUBJECT: &str = "Sinew-Subject";
/// When a message in quarantine was stored where it came from, milliseconds since 1970 UTC.
pub const TIME: &str = "Sinew-Time";
/// Why a message could not be read off the wire; its own headers are replaced by this one and [`RAW_HEADERS`].
pub const UNDELIVERABLE: &str = "Sinew-Undeliverable";
/// Header block of a message that could not be read off the wire, base64, cut after 4 KiB.
pub const RAW_HEADERS: &str = "Sinew-Raw-Headers";
/// On a node request that may have been sent before: a process of the agent may be working on it.
pub const REPEATED: &str = "Sinew-Repeated";
/// The place of a message in a stream, counted from 1 within a task.
pub const A2A_SEQ: &str = "A2A-Seq";
/// Present on the last message of a stream; the value says why it ended.
pub const A2A_END: &str = "A2A-End";

/// Every header with what it means, for documentation.
pub const TABLE: [(&str, &str); 33] = [
    (CONTENT_TYPE, "media type of the body; JSON when absent"),
    (A2A_VERSION, "A2A version, Major.Minor; absent means 0.3"),
    (A2A_EXTENSIONS, "A2A extensions a caller wants, comma-separated URIs"),
    (TRACE_PARENT, "W3C trace context"),
    (MESSAGE_ID, "idempotency key of the message"),
    (CALL_DEPTH, "workflows that called each other before this one; a hint"),
    (ACTIVATION, "activation key: what agents deduplicate effects on"),
    (ATTEMPT, "the attempt, counted from 1"),
    (DEADLINE, "when the answer must be there, ms since 1970 UTC"),
    (RESULT_SUBJECT, "where the task's result goes"),
    (BODY_HASH, "sha256 of the body"),
    (PART, "part i of n of one body, `i/n`, counted from 1"),
    (COMMIT, "id of a journal commit"),
    (OBJECT, "object that holds the body"),
    (SEQ, "place of an event in its execution, round.index"),
    (WORKFLOW, "name of the workflow"),
    (STATUS, "how an execution ended"),
    (STARTED, "when an execution began, ms since 1970 UTC"),
    (ENDED, "when an execution ended, ms since 1970 UTC"),
    (CALLER, "who started an execution, or whose call another process of an agent passes on"),
    (ENTRIES, "rounds and verdicts of a record; one with fewer never replaces it"),
    (USAGE, "model calls behind an execution as JSON; absent if no model was asked"),
    (FAULT, "code of the fault by which an execution ended; absent without one"),
    (PLAN, "digest of the plan that an execution ran"),
    (DRY_RUN, "true if an execution called no agent; absent otherwise"),
    (REASON, "why a message lies in quarantine"),
    (SUBJECT, "subject that a message in quarantine came on"),
    (TIME, "when a message in quarantine was stored where it came from, ms since 1970 UTC"),
    (UNDELIVERABLE, "why a message could not be read off the wire; stands in place of its own headers"),
    (RAW_HEADERS, "header block of a message that could not be read off the wire, base64, cut after 4 KiB"),
    (REPEATED, "on a node request that may have been sent before; absent otherwise"),
    (A2A_SEQ, "place in a stream, counted from 1"),
    (A2A_END, "marks the last message of a stream"),
];

/// Whether a header from outside may be passed on.
pub fn may_pass(name: &str) -> bool {
    let reserved = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"));
    !reserved || name.eq_ignore_ascii_case(MESSAGE_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_the_server_are_stripped() {
        for name in ["Nats-Rollup", "nats-expected-stream", "NATS-Schedule", "Nats-"] {
            assert!(!may_pass(name), "{name}");
        }
        for name in ["Nats-Msg-Id", "traceparent", "", "nät-"] {
            assert!(may_pass(name), "{name}");
        }
        assert!(TABLE.iter().all(|(name, _)| may_pass(name)));
    }
}
