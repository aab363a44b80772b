//! Message headers that the mesh reads and writes. `Nats-*` headers are commands to the server: all
//! except [`MESSAGE_ID`] are stripped from incoming messages.

/// Media type of the body; [`JSON`] if absent.
pub const CONTENT_TYPE: &str = "Content-Type";
/// A body in JSON, the default.
pub const JSON: &str = "application/json";
/// A body in protobuf; its response is protobuf too.
pub const PROTOBUF: &str = "application/protobuf";
/// A2A version, `Major.Minor`; 0.3 if absent.
pub const A2A_VERSION: &str = crate::a2a::A2A_VERSION_HEADER;
/// A2A extensions that a caller requests, comma-separated URIs.
pub const A2A_EXTENSIONS: &str = crate::a2a::A2A_EXTENSIONS_HEADER;
/// W3C trace context.
pub const TRACE_PARENT: &str = "traceparent";
/// Idempotency key of a message.
pub const MESSAGE_ID: &str = "Nats-Msg-Id";
/// Number of nested workflow calls above this one, for peers without a journal; only a hint, never
/// the limit.
pub const CALL_DEPTH: &str = "Sinew-Call-Depth";
/// Key by which agents deduplicate effects: the same for all attempts of an activation.
pub const ACTIVATION: &str = "Sinew-Activation";
/// The attempt, counted from 1.
pub const ATTEMPT: &str = "Sinew-Attempt";
/// Deadline of the response, milliseconds since 1970 UTC.
pub const DEADLINE: &str = "Sinew-Deadline";
/// Subject to which the result of a task is published.
pub const RESULT_SUBJECT: &str = "Sinew-Result-Subject";
/// sha256 of the body, lower-case hex.
pub const BODY_HASH: &str = "Sinew-Body-Hash";
/// Number of this part and of all parts, `i/n`, counted from 1; 1/1 if absent.
pub const PART: &str = "Sinew-Part";
/// Id of a journal commit, by which a writer recognises its own commits.
pub const COMMIT: &str = "Sinew-Commit";
/// Object of the artifact store that contains the body, if the message is empty.
pub const OBJECT: &str = "Sinew-Object";
/// Position of an event in its execution, `round.index`.
pub const SEQ: &str = "Sinew-Seq";
/// Name of the workflow, percent-encoded.
pub const WORKFLOW: &str = "Sinew-Workflow";
/// Final status of an execution.
pub const STATUS: &str = "Sinew-Status";
/// Start time of an execution, milliseconds since 1970 UTC.
pub const STARTED: &str = "Sinew-Started";
/// End time of an execution, milliseconds since 1970 UTC.
pub const ENDED: &str = "Sinew-Ended";
/// Caller who started an execution or made a change, or whose call another process of an agent forwards.
pub const CALLER: &str = "Sinew-Caller";
/// Entry point through which a caller made a change: `cli`, `rest`, `console`, `a2a`, `mcp` or `hook`.
pub const VIA: &str = "Sinew-Via";
/// Id of the key with which a caller made a change at a gateway. Absent without a key.
pub const KEY: &str = "Sinew-Key";
/// `true` if credentials prove the name of the caller of a change. Absent otherwise.
pub const PROVEN: &str = "Sinew-Proven";
/// Number of rounds and verdicts in the record of an execution; a record never replaces one with
/// more.
pub const ENTRIES: &str = "Sinew-Entries";
/// Model usage of an execution as JSON: turns, tool calls, tokens, price. Absent if no model was
/// called.
pub const USAGE: &str = "Sinew-Usage";
/// Operator code of the fault that ended an execution, percent-encoded. Absent without a fault.
pub const FAULT: &str = "Sinew-Fault";
/// Digest of the plan of an execution. Absent in records of older releases.
pub const PLAN: &str = "Sinew-Plan";
/// Route of an execution: a hash of the nodes that ran, how they ended and which edges were live.
/// Absent in records of older releases.
pub const ROUTE: &str = "Sinew-Route";
/// Attributes of an execution as JSON, percent-encoded: labels, idempotency key, parent, session, user,
/// called agents. Absent without any, and in records of older releases.
pub const ATTRIBUTES: &str = "Sinew-Attributes";
/// `true` for an execution that called no agent and used null for every output. Absent otherwise.
pub const DRY_RUN: &str = "Sinew-Dry-Run";
/// Reason why a message is quarantined, percent-encoded.
pub const REASON: &str = "Sinew-Reason";
/// Original subject of a quarantined message.
pub const SUBJECT: &str = "Sinew-Subject";
/// Time at which a quarantined message was stored in its original stream, milliseconds since 1970
/// UTC.
pub const TIME: &str = "Sinew-Time";
/// Reason why a message could not be parsed; its own headers are replaced by this one and
/// [`RAW_HEADERS`].
pub const UNDELIVERABLE: &str = "Sinew-Undeliverable";
/// Header block of a message that could not be parsed, base64, truncated to 4 KiB.
pub const RAW_HEADERS: &str = "Sinew-Raw-Headers";
/// Present on a node request that may have been sent before: a process of the agent may already be
/// processing it.
pub const REPEATED: &str = "Sinew-Repeated";
/// Position of a message in a stream, counted from 1 within a task.
pub const A2A_SEQ: &str = "A2A-Seq";
/// Present on the last message of a stream; its value is the reason for the end.
pub const A2A_END: &str = "A2A-End";

/// Every header with its description, for the documentation.
pub const TABLE: [(&str, &str); 38] = [
    (CONTENT_TYPE, "media type of the body; JSON when absent"),
    (A2A_VERSION, "A2A version, Major.Minor; absent means 0.3"),
    (A2A_EXTENSIONS, "A2A extensions that the caller requests, comma-separated URIs"),
    (TRACE_PARENT, "W3C trace context"),
    (MESSAGE_ID, "idempotency key of the message"),
    (CALL_DEPTH, "depth of the call chain of workflows; informational"),
    (ACTIVATION, "activation key, by which agents deduplicate side effects"),
    (ATTEMPT, "the attempt, counted from 1"),
    (DEADLINE, "deadline of the answer, ms since 1970 UTC"),
    (RESULT_SUBJECT, "subject for the result of the task"),
    (BODY_HASH, "sha256 of the body"),
    (PART, "part i of n of one body, `i/n`, counted from 1"),
    (COMMIT, "id of a journal commit"),
    (OBJECT, "object that holds the body"),
    (SEQ, "position of an event in its execution, round.index"),
    (WORKFLOW, "name of the workflow"),
    (STATUS, "outcome of an execution"),
    (STARTED, "start time of an execution, ms since 1970 UTC"),
    (ENDED, "end time of an execution, ms since 1970 UTC"),
    (
        CALLER,
        "caller that started an execution or made a change, or whose call another process of an agent forwards",
    ),
    (VIA, "entry point of a change: cli, rest, console, a2a, mcp or hook"),
    (KEY, "id of the key of a change at a gateway; absent without one"),
    (PROVEN, "true if credentials prove the caller of a change; absent otherwise"),
    (ENTRIES, "number of rounds and verdicts of a record; a record with fewer never replaces it"),
    (USAGE, "model calls of an execution as JSON; absent if no model was called"),
    (FAULT, "code of the fault with which an execution failed; absent without one"),
    (PLAN, "digest of the plan that an execution ran"),
    (ROUTE, "hash of the nodes that ran, how they ended and which edges were live"),
    (ATTRIBUTES, "labels, idempotency key, parent, session, user and called agents of an execution, as JSON"),
    (DRY_RUN, "true if an execution called no agent; absent otherwise"),
    (REASON, "reason why a message is quarantined"),
    (SUBJECT, "original subject of a quarantined message"),
    (TIME, "time at which a quarantined message was stored in its original stream, ms since 1970 UTC"),
    (UNDELIVERABLE, "reason why a message could not be parsed; replaces its own headers"),
    (RAW_HEADERS, "header block of a message that could not be parsed, base64, truncated to 4 KiB"),
    (REPEATED, "present on a node request that may have been sent before"),
    (A2A_SEQ, "position in a stream, counted from 1"),
    (A2A_END, "marks the last message of a stream"),
];

/// Returns whether a header of an untrusted message may be forwarded.
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
