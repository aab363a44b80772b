//! Subjects that each role may publish and read: one table, expanded for a namespace and a user.
//!
//! A tenant is a NATS account; within an account, only these subjects separate users. All other
//! subjects are refused. [`config`] renders the table for nats-server, [`nsc`] for operator mode.

mod compare;
mod guest;
mod render;
#[cfg(test)]
mod tests;

use crate::subject::INTAKE_CONTROL;
use std::collections::BTreeSet;

pub use compare::{GrantedRights, RightsComparison, compare};
pub use guest::Guest;
pub use render::{BadTenant, Login, Tenant, User, accounts, config, nsc};

use crate::Token;
use crate::card::agent_call;
use crate::part::MAX_PARTS;
use crate::stream::{
    ACCESS, AGENTS, ARTIFACTS, FLEET, PLANS, PUSHES, STEPS, STREAMS, Stream, bucket, fleet_key,
};

/// Role of a user on the mesh. A user may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Processes the tasks of one agent name, its own.
    Agent,
    /// Owns shards, sends tasks and writes journals.
    Executor,
    /// Starts and observes executions: programs and people.
    Client,
    /// Acts as a client on behalf of its callers, whose keys it verifies.
    Gateway,
    /// Reads everything.
    Operator,
    /// Reads everything, deploys workflows, and operates on executions of all callers.
    Admin,
    /// Creates streams and buckets; reads no data.
    Provisioner,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 7] = [
        Self::Agent,
        Self::Executor,
        Self::Client,
        Self::Gateway,
        Self::Operator,
        Self::Admin,
        Self::Provisioner,
    ];

    /// Returns the name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Executor => "executor",
            Self::Client => "client",
            Self::Gateway => "gateway",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Provisioner => "provisioner",
        }
    }

    /// Parses the name of a role.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// Returns the rights of credentials of this role beyond its purpose, because subject
    /// permissions cannot express the limit.
    ///
    /// A server publishes a response to any reply subject of a request, without checking the
    /// requester's permissions, and treats an empty response as an API call. So permissions inside
    /// one account protect the data of others from reads and prevent mistakes. Executors ignore
    /// such messages, but only a separate account prevents a user from deleting streams.
    pub const fn opens(self) -> &'static str {
        match self {
            Self::Agent => {
                "can read artifacts of its tenant whose address it knows, and no others, for they are sealed with a key in the \
                 address; can add artifacts until the store is full, but never replace or delete one; can send progress in the name of any task whose ids it knows; \
                 can be made to send one answer to a subject of a caller's choice; can have the server empty or delete any \
                 stream of its tenant, as all who read or acknowledge single messages can. As a guest, in an account of its \
                 own, it can do neither of the last two"
            }
            Self::Executor => {
                "can do everything to executions of its tenant; holds the key that results are proved with"
            }
            Self::Client => {
                "can read every execution, event and artifact of its tenant, and can cancel, pause, resume, answer and \
                 retry executions of others unless executors are told to check the caller; with an agent's help (a card \
                 that is a command) can speak as another caller, since a server delivers what a consumer reads to any \
                 subject without asking for rights; can have the server empty or delete any stream of its tenant"
            }
            Self::Gateway => {
                "as client; reads messages that were set aside; sees how many messages all streams and queues of its tenant hold, and which executors and agent \
                 processes there are; can speak as any caller of its tenant; holds the digests of all keys, the secrets of webhooks, \
                 and the keys that sign cards, notifications and sessions"
            }
            Self::Operator => {
                "can read everything of its tenant but the executors' key and the secrets of gateways, inputs and outputs included; can have the \
                 server deliver any of that to any subject, as every maker of consumers can, and so repeat commands \
                 of others; can have it empty or delete any stream of its tenant"
            }
            Self::Admin => {
                "as operator; can change what new executions run, and send results again from quarantine; can give keys to \
                 gateways, and read the secrets of webhooks"
            }
            Self::Provisioner => {
                "can change and purge by changing streams; can write the settings and the executors' key"
            }
        }
    }

    /// Returns the rights of the role in a namespace, for a user whose name has this token.
    pub fn permissions(self, namespace: &str, name: &Token) -> Permissions {
        self.named(namespace, name.as_str())
    }

    /// Returns the rights to call one agent or workflow and to read its card, for a user whose name
    /// has this token.
    pub fn calls(namespace: &str, name: &Token, called_name: &str) -> Permissions {
        let called = Token::of(called_name);
        let mut table =
            Table { namespace: Token::of(namespace), name: name.as_str(), got: Permissions::default() };
        // The agent itself, and the execution that calls it.
        for door in [&called, &Token::of(&agent_call(called_name))] {
            table.say(&format!("rpc.{door}.*.{name}"));
        }
        let (cards, card) = (table.stream("CARDS"), table.subject(&format!("card.{called}")));
        table.api(&format!("DIRECT.GET.{cards}.{card}"));
        table.got
    }

    /// Returns the rights with `name` at the position of the user's token: a token, or a template
    /// of nsc.
    fn named(self, namespace: &str, name: &str) -> Permissions {
        let mut table = Table { namespace: Token::of(namespace), name, got: Permissions::default() };
        table.everybody();
        match self {
            Self::Agent => table.agent(),
            Self::Executor => table.executor(),
            Self::Client => table.client(),
            Self::Gateway => {
                table.client();
                table.gateway();
            }
            Self::Operator => table.operator(),
            Self::Admin => {
                table.operator();
                table.admin();
            }
            Self::Provisioner => table.provisioner(),
        }
        table.got
    }
}

/// Rights of a user. The server rejects every other subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects to which the user may publish.
    pub publish: BTreeSet<String>,
    /// Subjects to which the user may subscribe; a name after a blank is the required queue group.
    pub subscribe: BTreeSet<String>,
    /// Maximum number of messages to the reply subject of a received message; 0 for none.
    pub responses: u32,
}

/// Subject on which the server returns the permissions of a user.
pub const OWN_RIGHTS: &str = "$SYS.REQ.USER.INFO";

/// Maximum time for a response to a request, in minutes.
pub const RESPONSE_MINUTES: u32 = 60;

impl Permissions {
    /// Returns the union of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.publish.extend(other.publish);
        self.subscribe.extend(other.subscribe);
        self.responses = self.responses.max(other.responses);
        self
    }

    /// Returns whether publishing to this subject is allowed.
    pub fn may_publish(&self, subject: &str) -> bool {
        self.publish.iter().any(|pattern| covers(pattern, subject))
    }

    /// Returns whether subscribing to this subject or pattern is allowed, in this queue group or
    /// without one.
    pub fn may_subscribe(&self, subject: &str, queue: Option<&str>) -> bool {
        self.subscribe.iter().any(|pattern| match pattern.split_once(' ') {
            Some((pattern, group)) => covers(pattern, subject) && queue == Some(group),
            None => covers(pattern, subject),
        })
    }
}

/// Returns the roles that allow an operation, for advice to a user of this name: roles under this
/// name, and the agent whose name is in the subject if it may; otherwise roles under a name in the
/// subject.
pub fn holders(
    namespace: &str,
    name: &Token,
    subject: &str,
    may: impl Fn(&Permissions) -> bool,
) -> Vec<(Role, Token)> {
    let under = |name: &Token| -> Vec<(Role, Token)> {
        let roles = Role::ALL.into_iter().filter(|role| may(&role.permissions(namespace, name)));
        roles.map(|role| (role, name.clone())).collect()
    };
    let tokens = subject.split('.').flat_map(|token| [Some(token), token.strip_prefix("agent-")]);
    let others = tokens.flatten().filter_map(|token| Token::parse(token).ok());
    let own = under(name);
    let mut found = others.map(|name| under(&name));
    if own.is_empty() {
        return found.find(|found| !found.is_empty()).unwrap_or_default();
    }
    // Roles that act for all agents have more rights than are missing.
    let agent =
        found.find_map(|found| found.into_iter().find(|(role, other)| *role == Role::Agent && other != name));
    let has_agent = own.iter().any(|(role, _)| *role == Role::Agent);
    agent.filter(|_| !has_agent).into_iter().chain(own).collect()
}

/// Returns whether `pattern` matches every subject that `subject` matches.
pub fn covers(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(wanted), Some(token)) if wanted == token && token != ">" => {}
            _ => return false,
        }
    }
}

/// Permission table under construction for one user.
struct Table<'a> {
    namespace: Token,
    name: &'a str,
    got: Permissions,
}

impl Table<'_> {
    /// Adds the rights to connect, receive responses, and read the settings of the mesh and one's
    /// own permissions.
    fn everybody(&mut self) {
        self.hear(format!("_INBOX_{}.>", self.name));
        self.got.publish.insert(OWN_RIGHTS.to_owned());
        self.api("INFO");
        self.fleet_value(fleet_key::SETTINGS);
    }

    fn agent(&mut self) {
        let name = self.name;
        // Own queue. Only executors create it, because the right to create consumers would allow
        // reading other agents' tasks.
        let tasks = self.stream("TASKS");
        for call in ["INFO", "MSG.NEXT"] {
            self.api(&format!("CONSUMER.{call}.{tasks}.agent-{name}"));
        }
        self.acks(&tasks, &format!("agent-{name}"));
        // Own results, and reading one after an unclear acknowledgement: the call contains the
        // subject, so no other is readable.
        self.say(&format!("result.*.{name}.*.*.*"));
        let (results, own) = (self.stream("RESULTS"), self.subject(&format!("result.*.{name}.>")));
        self.api(&format!("DIRECT.GET.{results}.{own}"));
        // Own steps, and reading them after a redelivery.
        self.say(&format!("step.{name}.*.*.*"));
        let (steps, own) = (self.stream(STEPS), self.subject(&format!("step.{name}.>")));
        self.api(&format!("DIRECT.GET.{steps}.{own}"));
        self.quarantine("TASKS");
        self.say(&format!("card.{name}"));
        self.say("progress.*.*");
        self.artifacts(true);
        // Own endpoints: the permission includes the queue group, so that nobody can subscribe
        // outside it.
        self.hear(format!("{} {name}", self.subject(&format!("rpc.{name}.>"))));
        self.hear(format!("{} {name}", self.subject(&format!("node.{name}"))));
        self.hear(self.subject(&format!("control.{name}.>")));
        // Messages between the processes of the agent.
        self.say(&format!("replica.{name}.*"));
        self.hear(self.subject(&format!("replica.{name}.*")));
        // A replica that shuts down removes the card for all others.
        self.hear(self.subject(&format!("card.{name}")));
        for verb in ["PING", "INFO", "STATS"] {
            self.hear(format!("$SRV.{verb}"));
            self.hear(format!("$SRV.{verb}.{name}"));
            self.hear(format!("$SRV.{verb}.{name}.*"));
        }
        self.got.responses = 1;
    }

    fn executor(&mut self) {
        let name = self.name;
        for kind in
            ["JOURNAL", "HISTORY", "COMMANDS", "RESULTS", "EVENTS", "CARDS", "WORKFLOWS", "QUARANTINE"]
        {
            self.read(&self.stream(kind));
        }
        // A full quarantine discards its oldest messages.
        for kind in ["JOURNAL", "QUARANTINE"] {
            self.api(&format!("STREAM.PURGE.{}", self.stream(kind)));
        }
        // An executor does not start before all streams are configured correctly.
        let plans = format!("OBJ_{}", bucket(self.namespace.as_str(), PLANS));
        let unread = ["TASKS", AGENTS, STEPS, ACCESS, PUSHES, ARTIFACTS].map(|kind| self.stream(kind));
        for stream in [plans].into_iter().chain(unread) {
            self.api(&format!("STREAM.INFO.{stream}"));
        }
        // The agents' queues: created and inspected, never read.
        let tasks = self.stream("TASKS");
        self.api(&format!("CONSUMER.CREATE.{tasks}.>"));
        for call in ["INFO", "DELETE"] {
            self.api(&format!("CONSUMER.{call}.{tasks}.*"));
        }
        self.api(&format!("CONSUMER.LIST.{tasks}"));
        self.get(&tasks);
        // Tasks of ended executions are removed from their queues.
        self.api(&format!("STREAM.MSG.DELETE.{tasks}"));
        for subject in [
            "journal.*",
            "history.*",
            "event.*.*.*",
            "card.*",
            "task.*.*.*",
            // As the workflow that answers a task of another execution.
            "result.*.*.*.*.*",
            "progress.*.*",
            "node.*",
            "control.*.*",
            "query.*",
        ] {
            self.say(subject);
        }
        self.say(&format!("command.*.*.{name}.*"));
        self.say(&format!("start.*.{name}.*"));
        self.say(&format!("rpc.*.*.{name}"));
        self.quarantine("*");
        let fleet = bucket(self.namespace.as_str(), FLEET);
        self.got.publish.insert(format!("$KV.{fleet}.>"));
        self.read(&format!("KV_{fleet}"));
        self.artifacts(true);
        // Plans of workflows that call one agent, which nobody deploys. Keys are digests.
        self.objects(PLANS, true);
        for subject in ["query.*", "start.*.>", "progress.*.*", "control.*.>", "rpc.*.>", "event.>"] {
            self.hear(self.subject(subject));
        }
        // Every workflow is a micro service.
        for verb in ["PING", "INFO", "STATS"] {
            self.hear(format!("$SRV.{verb}"));
            self.hear(format!("$SRV.{verb}.*"));
            self.hear(format!("$SRV.{verb}.*.*"));
        }
        self.got.responses = MAX_PARTS;
    }

    fn client(&mut self) {
        let name = self.name;
        for kind in ["EVENTS", "HISTORY", "CARDS", AGENTS, "WORKFLOWS", "JOURNAL"] {
            self.read(&self.stream(kind));
        }
        // Commands are write-once; an own command is read after an unclear acknowledgement.
        let (commands, own) = (self.stream("COMMANDS"), self.subject(&format!("command.*.*.{name}.*")));
        self.api(&format!("DIRECT.GET.{commands}.{own}"));
        self.say(&format!("command.*.*.{name}.*"));
        self.say(&format!("start.*.{name}.*"));
        self.say(&format!("rpc.*.*.{name}"));
        self.say("query.*");
        self.artifacts(true);
        self.objects(PLANS, false);
        for subject in ["event.>", "progress.*.*"] {
            self.hear(self.subject(subject));
        }
    }

    /// Adds the rights of a client that go beyond those of one caller.
    fn gateway(&mut self) {
        for subject in
            ["command.*.*.*.*", "start.*.*.*", "rpc.*.*.*", "access.secret.*", "access.use.*", "push.*.*.*"]
        {
            self.say(subject);
        }
        let (commands, any) = (self.stream("COMMANDS"), self.subject("command.*.*.*.*"));
        self.api(&format!("DIRECT.GET.{commands}.{any}"));
        // Quarantined messages are listed; only admins republish them. Commands are read for the audit.
        for kind in [ACCESS, PUSHES, "QUARANTINE", "COMMANDS"] {
            self.read(&self.stream(kind));
        }
        // Pages about the mesh show figures but no messages: the size of streams and queues, the
        // executors, and the state of an agent's processes.
        let own = self.namespace.as_str();
        let plans = format!("OBJ_{}", bucket(own, PLANS));
        let fleet = format!("KV_{}", bucket(own, FLEET));
        let streams: Vec<String> = STREAMS.iter().map(|stream| stream.name(own)).collect();
        for stream in streams.into_iter().chain([plans, fleet]) {
            self.api(&format!("STREAM.INFO.{stream}"));
        }
        self.api(&format!("CONSUMER.LIST.{}", self.stream("TASKS")));
        // Retiring an offline agent removes its card from the mirror, which does not route calls.
        self.api(&format!("STREAM.PURGE.{}", self.stream(AGENTS)));
        // Stops and resumes the intake of agents.
        self.say(&format!("control.*.{INTAKE_CONTROL}"));
        self.fleet_members();
        self.got.publish.insert("$SRV.STATS.*".to_owned());
    }

    fn operator(&mut self) {
        let name = self.name;
        for stream in STREAMS {
            // Nothing may consume from an agent's queue: tasks are read by sequence, not by
            // consumers.
            match stream.kind {
                "TASKS" => self.get(&self.stream(stream.kind)),
                // Keys are stored as digests; all other records are secret.
                ACCESS => {
                    self.records(ACCESS, "access.key");
                    self.records(ACCESS, "access.use");
                    self.records(ACCESS, "access.entry");
                }
                PUSHES => {}
                // Encrypted pieces, unreadable without an address.
                ARTIFACTS => self.artifacts(false),
                kind => self.read(&self.stream(kind)),
            }
        }
        for call in ["STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "CONSUMER.NAMES.*", "CONSUMER.LIST.*"] {
            self.api(call);
        }
        self.api("CONSUMER.INFO.*.*");
        self.fleet_members();
        self.objects(PLANS, false);
        self.read(&format!("OBJ_{}", bucket(self.namespace.as_str(), PLANS)));
        self.say("query.*");
        self.say(&format!("rpc.*.GetAgentCard.{name}"));
        self.got.publish.insert("$SRV.>".to_owned());
        for subject in ["event.>", "progress.*.*", "card.*"] {
            self.hear(self.subject(subject));
        }
    }

    /// Adds the rights of an admin that go beyond reading.
    fn admin(&mut self) {
        let name = self.name;
        self.say(&format!("command.*.*.{name}.*"));
        self.say(&format!("start.*.{name}.*"));
        self.say(&format!("rpc.*.*.{name}"));
        self.say("workflow.*");
        self.records(ACCESS, "access.hook");
        for subject in ["access.key.*", "access.hook.*", "access.entry.*"] {
            self.say(subject);
        }
        // Retracts the card of an agent that was decommissioned.
        self.say("card.*");
        self.say(&format!("control.*.{INTAKE_CONTROL}"));
        // Republishes quarantined messages to their original subjects.
        for subject in ["command.*.*.*.*", "result.*.*.*.*.*", "task.*.*.*"] {
            self.say(subject);
        }
        for kind in ["QUARANTINE", AGENTS] {
            self.api(&format!("STREAM.PURGE.{}", self.stream(kind)));
        }
        // A subject accepts one message, so the original is deleted first. Excludes the steps of
        // agents: an agent would repeat completed work.
        let sent_again =
            |stream: &&Stream| stream.write_once && !["QUARANTINE", STEPS, ARTIFACTS].contains(&stream.kind);
        for stream in STREAMS.iter().filter(sent_again) {
            self.api(&format!("STREAM.MSG.DELETE.{}", self.stream(stream.kind)));
        }
        self.artifacts(true);
        self.objects(PLANS, true);
        self.api(&format!("CONSUMER.DELETE.{}.*", self.stream("TASKS")));
    }

    fn provisioner(&mut self) {
        let own = self.namespace.as_str().to_owned();
        let streams = STREAMS.iter().map(|stream| stream.name(&own));
        let plans = format!("OBJ_{}", bucket(&own, PLANS));
        let fleet = format!("KV_{}", bucket(&own, FLEET));
        for stream in streams.chain([plans, fleet.clone()]) {
            for call in ["CREATE", "UPDATE", "INFO"] {
                self.api(&format!("STREAM.{call}.{stream}"));
            }
        }
        for call in ["STREAM.NAMES", "STREAM.LIST"] {
            self.api(call);
        }
        for key in [fleet_key::SETTINGS, fleet_key::RESULT_KEY] {
            self.fleet_value(key);
            self.got.publish.insert(format!("$KV.{}.{key}", bucket(&own, FLEET)));
        }
        self.api(&format!("STREAM.MSG.GET.{fleet}"));
    }

    /// Adds the rights to read a stream from any position, by a consumer or message by message. A
    /// consumer may also push, and the server does not check whether its creator may publish there.
    /// So agents may create no consumers, and clients none on the objects, whose bytes they choose.
    fn read(&mut self, stream: &str) {
        // Always by name: a consumer without a name could have any filter.
        self.api(&format!("CONSUMER.CREATE.{stream}.>"));
        for call in ["MSG.NEXT", "INFO", "DELETE"] {
            self.api(&format!("CONSUMER.{call}.{stream}.*"));
        }
        self.api(&format!("STREAM.INFO.{stream}"));
        self.get(stream);
    }

    /// Adds the rights to read the records below some subjects of a stream, and no others.
    fn records(&mut self, kind: &str, below: &str) {
        let (stream, below) = (self.stream(kind), self.subject(below));
        self.api(&format!("DIRECT.GET.{stream}.{below}.*"));
        self.api(&format!("CONSUMER.CREATE.{stream}.*.{below}.>"));
        for call in ["MSG.NEXT", "DELETE"] {
            self.api(&format!("CONSUMER.{call}.{stream}.*"));
        }
    }

    /// Adds the rights to read single messages of a stream, from any replica and from the leader.
    fn get(&mut self, stream: &str) {
        self.api(&format!("DIRECT.GET.{stream}"));
        self.api(&format!("DIRECT.GET.{stream}.>"));
        self.api(&format!("STREAM.MSG.GET.{stream}"));
    }

    /// Adds the rights for artifacts, by the subjects of their pieces. A read request with the
    /// subject in its body would allow reading the whole stream, and a pattern as the subject reads
    /// its last piece. Therefore pieces are encrypted, and the key of an object is only in its
    /// address. A subject accepts one message, so nobody replaces or deletes stored pieces.
    fn artifacts(&mut self, write: bool) {
        let (stream, pieces) = (self.stream(ARTIFACTS), self.subject("artifact.*.*"));
        self.api(&format!("DIRECT.GET.{stream}.{pieces}"));
        if write {
            self.say("artifact.*.*");
        }
    }

    /// Adds the rights for an object store; objects are read by direct gets.
    fn objects(&mut self, kind: &str, write: bool) {
        let bucket = bucket(self.namespace.as_str(), kind);
        self.get(&format!("OBJ_{bucket}"));
        if write {
            self.got.publish.insert(format!("$O.{bucket}.C.*"));
            self.got.publish.insert(format!("$O.{bucket}.M.*"));
        }
    }

    /// Adds the rights to quarantine messages of a stream.
    fn quarantine(&mut self, stream: &str) {
        let subject = format!("quarantine.{stream}.*");
        self.say(&subject);
        let (quarantine, own) = (self.stream("QUARANTINE"), self.subject(&subject));
        self.api(&format!("DIRECT.GET.{quarantine}.{own}"));
    }

    /// Adds the rights for one value, or one kind of value, of the executors' bucket.
    fn fleet_value(&mut self, key: &str) {
        let fleet = bucket(self.namespace.as_str(), FLEET);
        self.api(&format!("DIRECT.GET.KV_{fleet}.$KV.{fleet}.{key}"));
    }

    /// Adds the rights to read everything in the executors' bucket except their key: the call
    /// contains the subject.
    fn fleet_members(&mut self) {
        let fleet = bucket(self.namespace.as_str(), FLEET);
        for below in ["executor", "shard"] {
            self.fleet_value(&format!("{below}.*"));
            self.api(&format!("CONSUMER.CREATE.KV_{fleet}.*.$KV.{fleet}.{below}.>"));
        }
        for call in ["MSG.NEXT", "DELETE"] {
            self.api(&format!("CONSUMER.{call}.KV_{fleet}.*"));
        }
    }

    /// Adds both forms of ack subjects: without and with domain and account.
    fn acks(&mut self, stream: &str, consumer: &str) {
        self.got.publish.insert(format!("$JS.ACK.{stream}.{consumer}.>"));
        self.got.publish.insert(format!("$JS.ACK.*.*.{stream}.{consumer}.>"));
    }

    fn api(&mut self, call: &str) {
        self.got.publish.insert(format!("$JS.API.{call}"));
    }

    fn say(&mut self, tokens: &str) {
        self.got.publish.insert(self.subject(tokens));
    }

    fn hear(&mut self, subject: String) {
        self.got.subscribe.insert(subject);
    }

    fn subject(&self, tokens: &str) -> String {
        format!("{}.v1.{tokens}", self.namespace)
    }

    fn stream(&self, kind: &str) -> String {
        bucket(self.namespace.as_str(), kind)
    }
}
