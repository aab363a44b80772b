//! Rights of each role, written by hand from the purpose of the roles, not from the code that grants them.
//!
//! Roles: Agent, Executor, Client, Operator, adMin, Provisioner. `{me}` is the user's own name, `{x}` another's.

/// Subjects of the mesh: who may publish to them.
pub(crate) const PUBLISH: &[(&str, &str)] = &[
    // The executors' own.
    ("journal.0", "E"),
    ("history.e", "E"),
    ("event.w.e.command", "E"),
    ("workflow.w", "M"),
    // Under one's own name, never under another's; an admin sends again what was set aside.
    ("command.0.start.{me}.k", "ECM"),
    ("command.0.cancel.{me}.k", "ECM"),
    ("command.0.approve.{me}.k", "ECM"),
    ("command.0.start.{x}.k", "M"),
    ("command.0.approve.{x}.k", "M"),
    ("result.0.{me}.e.t.k", "AEM"),
    ("result.0.{x}.e.t.k", "EM"),
    ("card.{me}", "AEM"),
    ("card.{x}", "EM"),
    ("rpc.{x}.SendMessage.{me}", "ECM"),
    ("rpc.{x}.SendMessage.{x}", ""),
    ("rpc.{me}.SendMessage.{x}", ""),
    ("rpc.{x}.GetAgentCard.{me}", "ECOM"),
    ("rpc.{x}.GetAgentCard.{x}", ""),
    ("task.{me}.e.t", "EM"),
    ("task.{x}.e.t", "EM"),
    ("control.{me}.t", "E"),
    ("control.{x}.t", "E"),
    ("progress.e.t", "AE"),
    ("query.0", "ECOM"),
    ("quarantine.TASKS.1", "AE"),
    ("quarantine.RESULTS.1", "E"),
    ("quarantine.COMMANDS.1", "E"),
    ("nonsense.{me}", ""),
    ("card.{me}.more", ""),
];

/// Subjects of the mesh: who may hear them. A queue group stands behind a blank.
pub(crate) const SUBSCRIBE: &[(&str, &str)] = &[
    // Stored messages are read from streams, not from subscriptions.
    ("journal.0", ""),
    ("journal.>", ""),
    ("history.>", ""),
    ("command.>", ""),
    ("task.{me}.>", ""),
    ("task.{x}.>", ""),
    ("result.>", ""),
    ("result.*.{me}.>", ""),
    ("workflow.>", ""),
    ("quarantine.>", ""),
    ("event.>", "COM"),
    ("event.w.e.command", "COM"),
    ("progress.*.*", "ECOM"),
    ("progress.e.t", "ECOM"),
    ("card.{me}", "AOM"),
    ("card.{x}", "OM"),
    ("card.*", "OM"),
    // A door is shared by its replicas; nobody listens beside them, and executors are the doors of workflows.
    ("rpc.{me}.*.* {me}", "AE"),
    ("rpc.{me}.> {me}", "AE"),
    ("rpc.{me}.>", "E"),
    ("rpc.{me}.> spy", "E"),
    ("rpc.{x}.> {x}", "E"),
    ("rpc.{x}.>", "E"),
    ("control.{me}.t", "AE"),
    ("control.{me}.>", "AE"),
    ("control.{x}.>", "E"),
    ("query.0", "E"),
    ("query.*", "E"),
];

/// Streams and buckets, by the letters of [`CALLS`].
pub(crate) const STREAMS: [(char, &str); 12] = [
    ('j', "JOURNAL"),
    ('h', "HISTORY"),
    ('c', "COMMANDS"),
    ('t', "TASKS"),
    ('r', "RESULTS"),
    ('e', "EVENTS"),
    ('k', "CARDS"),
    ('w', "WORKFLOWS"),
    ('q', "QUARANTINE"),
    ('f', "FLEET"),
    ('a', "ARTIFACTS"),
    ('p', "PLANS"),
];

/// All of [`STREAMS`].
const ALL: &str = "jhctrekwqfap";

/// Calls of JetStream (`{s}` is the stream), and for each role the streams it may make them on. A role that is not named
/// may make them on none.
pub(crate) const CALLS: &[(&str, &[(char, &str)])] = &[
    ("STREAM.INFO.{s}", &[('E', ALL), ('C', "jhekw"), ('O', ALL), ('M', ALL), ('P', ALL)]),
    ("STREAM.CREATE.{s}", &[('P', ALL)]),
    ("STREAM.UPDATE.{s}", &[('P', ALL)]),
    ("STREAM.DELETE.{s}", &[]),
    ("STREAM.SNAPSHOT.{s}", &[]),
    ("STREAM.RESTORE.{s}", &[]),
    ("STREAM.LEADER.STEPDOWN.{s}", &[]),
    ("STREAM.PEER.REMOVE.{s}", &[]),
    ("STREAM.PURGE.{s}", &[('E', "jq"), ('M', "q")]),
    ("STREAM.MSG.DELETE.{s}", &[('M', "ctr")]),
    // Any message, by its place. The executors' key lies in the fleet, which operators see all the rest of.
    (
        "STREAM.MSG.GET.{s}",
        &[('A', "a"), ('E', ALL), ('C', "jhekwap"), ('O', "jhctrekwqap"), ('M', "jhctrekwqap"), ('P', "f")],
    ),
    (
        "DIRECT.GET.{s}",
        &[('A', "a"), ('E', ALL), ('C', "jhekwap"), ('O', "jhctrekwqap"), ('M', "jhctrekwqap")],
    ),
    // A consumer may push anywhere, so no agent makes any; one without a name may have any filter, so nobody does. Nobody
    // but executors makes one on tasks, for it could take them from their agent.
    ("CONSUMER.CREATE.{s}", &[]),
    ("CONSUMER.DURABLE.CREATE.{s}.x", &[]),
    (
        "CONSUMER.CREATE.{s}.x.filter",
        &[('E', "jhctrekwqf"), ('C', "jhekw"), ('O', "jhcrekwqap"), ('M', "jhcrekwqap")],
    ),
    ("CONSUMER.INFO.{s}.x", &[('E', "jhctrekwqf"), ('C', "jhekw"), ('O', ALL), ('M', ALL)]),
    (
        "CONSUMER.MSG.NEXT.{s}.x",
        &[('E', "jhcrekwqf"), ('C', "jhekw"), ('O', "jhcrekwqfap"), ('M', "jhcrekwqfap")],
    ),
    ("CONSUMER.DELETE.{s}.x", &[('E', "jhctrekwqf"), ('C', "jhekw"), ('O', "jhcrekwqfap"), ('M', ALL)]),
    ("CONSUMER.LIST.{s}", &[('O', ALL), ('M', ALL)]),
    ("CONSUMER.NAMES.{s}", &[('O', ALL), ('M', ALL)]),
    ("CONSUMER.PAUSE.{s}.x", &[]),
    ("CONSUMER.UNPIN.{s}.x", &[]),
    ("CONSUMER.LEADER.STEPDOWN.{s}.x", &[]),
];

/// Whole subjects (`{ns}` is the namespace): who may publish to them.
pub(crate) const OTHERS: &[(&str, &str)] = &[
    ("$JS.API.INFO", "AECOMP"),
    ("$SYS.REQ.USER.INFO", "AECOMP"),
    ("$JS.API.STREAM.NAMES", "OMP"),
    ("$JS.API.STREAM.LIST", "OMP"),
    ("$JS.API.SERVER.REMOVE", ""),
    ("$JS.API.ACCOUNT.PURGE.SOUTH", ""),
    ("$JS.API.META.LEADER.STEPDOWN", ""),
    ("$SYS.REQ.SERVER.PING", ""),
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", ""),
    // An agent's own queue, which executors make; its own results, read back; nobody else's.
    ("$JS.API.CONSUMER.INFO.{ns}_TASKS.agent-{me}", "AEOM"),
    ("$JS.API.CONSUMER.INFO.{ns}_TASKS.agent-{x}", "EOM"),
    ("$JS.API.CONSUMER.MSG.NEXT.{ns}_TASKS.agent-{me}", "A"),
    ("$JS.API.CONSUMER.MSG.NEXT.{ns}_TASKS.agent-{x}", ""),
    ("$JS.API.CONSUMER.CREATE.{ns}_TASKS.agent-{me}.{ns}.v1.task.{me}.>", "E"),
    ("$JS.ACK.{ns}_TASKS.agent-{me}.1.1.1.1.0", "A"),
    ("$JS.ACK.{ns}_TASKS.agent-{x}.1.1.1.1.0", ""),
    ("$JS.ACK._.hash.{ns}_TASKS.agent-{me}.1.1.1.1.0", "A"),
    ("$JS.ACK._.hash.{ns}_TASKS.agent-{x}.1.1.1.1.0", ""),
    ("$JS.ACK.{ns}_RESULTS.x.1.1.1.1.0", ""),
    ("$JS.API.DIRECT.GET.{ns}_RESULTS.{ns}.v1.result.0.{me}.e.t.k", "AEOM"),
    ("$JS.API.DIRECT.GET.{ns}_RESULTS.{ns}.v1.result.0.{x}.e.t.k", "EOM"),
    ("$JS.API.DIRECT.GET.{ns}_COMMANDS.{ns}.v1.command.0.start.{me}.k", "ECOM"),
    ("$JS.API.DIRECT.GET.{ns}_COMMANDS.{ns}.v1.command.0.start.{x}.k", "EOM"),
    ("$JS.API.DIRECT.GET.{ns}_TASKS.{ns}.v1.task.{me}.e.t", "EOM"),
    ("$JS.API.DIRECT.GET.{ns}_QUARANTINE.{ns}.v1.quarantine.TASKS.1", "AEOM"),
    ("$JS.API.DIRECT.GET.{ns}_QUARANTINE.{ns}.v1.quarantine.RESULTS.1", "EOM"),
    // Every role reads the settings of the mesh; only executors and the provisioner read the executors' key.
    ("$JS.API.DIRECT.GET.KV_{ns}_FLEET.$KV.{ns}_FLEET.settings", "AECOMP"),
    ("$JS.API.DIRECT.GET.KV_{ns}_FLEET.$KV.{ns}_FLEET.result_key", "EP"),
    ("$JS.API.DIRECT.GET.KV_{ns}_FLEET.$KV.{ns}_FLEET.shard.0", "EOM"),
    ("$JS.API.CONSUMER.CREATE.KV_{ns}_FLEET.x.$KV.{ns}_FLEET.shard.>", "EOM"),
    ("$JS.API.CONSUMER.CREATE.KV_{ns}_FLEET.x.$KV.{ns}_FLEET.executor.>", "EOM"),
    ("$JS.API.CONSUMER.CREATE.KV_{ns}_FLEET.x.$KV.{ns}_FLEET.result_key", "E"),
    ("$JS.API.CONSUMER.CREATE.KV_{ns}_FLEET.x.$KV.{ns}_FLEET.>", "E"),
    ("$KV.{ns}_FLEET.settings", "EP"),
    ("$KV.{ns}_FLEET.result_key", "EP"),
    ("$KV.{ns}_FLEET.shard.0", "E"),
    ("$KV.{ns}_FLEET.executor.{me}", "E"),
    ("$O.{ns}_ARTIFACTS.C.n", "AECM"),
    ("$O.{ns}_ARTIFACTS.M.n", "AECM"),
    ("$O.{ns}_PLANS.C.n", "M"),
    ("$O.{ns}_PLANS.M.n", "M"),
    ("$SRV.PING", "OM"),
    ("$SRV.STATS.{x}", "OM"),
    ("_INBOX_{me}.x", ""),
    ("_INBOX_{x}.x", ""),
    ("_INBOX.x", ""),
    ("elsewhere", ""),
    // Another mesh on the same account.
    ("other.v1.card.{me}", ""),
    ("$JS.API.STREAM.INFO.other_CARDS", "OM"),
    ("$JS.API.STREAM.CREATE.other_CARDS", ""),
];

/// Whole subjects: who may hear them.
pub(crate) const HEARD: &[(&str, &str)] = &[
    ("_INBOX_{me}.>", "AECOMP"),
    ("_INBOX_{me}.a.b", "AECOMP"),
    ("_INBOX_{x}.>", ""),
    ("_INBOX_{x}.a", ""),
    ("_INBOX.>", ""),
    ("_INBOX_*.>", ""),
    ("*.>", ""),
    (">", ""),
    ("*", ""),
    ("*.*.event.>", ""),
    ("{ns}.>", ""),
    ("{ns}.v1.>", ""),
    ("{ns}.*.event.>", ""),
    ("{ns}.v1.*.>", ""),
    ("$SYS.>", ""),
    ("$JS.>", ""),
    ("$JS.API.>", ""),
    ("$JS.ACK.>", ""),
    ("$JS.EVENT.>", ""),
    ("$KV.>", ""),
    ("$KV.{ns}_FLEET.>", ""),
    ("$O.>", ""),
    ("$SRV.>", ""),
    ("$SRV.PING", "AE"),
    ("$SRV.INFO.{me}", "AE"),
    ("$SRV.STATS.{me}.x", "AE"),
    ("$SRV.STATS.{x}", "E"),
    ("other.v1.event.>", ""),
];
