//! One of each message, made of fixed values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_protocol::a2a::{
    A2aError, AgentCard, AgentSkill, CoreMethod, ErrorCode, Message, Part, SendMessageRequest, Task,
};
use sinew_protocol::artifact::{ArtifactMeta, ArtifactRef, ArtifactUri, ObjectKey, StoredAt};
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::card::{AgentKind, Announcement, Delivery, Visualisation};
use sinew_protocol::command::{
    ApproveCommand, CancelCommand, Command, PauseCommand, ResumeCommand, RetryCommand, StartCommand,
};
use sinew_protocol::deployment::Deployment;
use sinew_protocol::journal::{
    Commit, Entry, EntryKind, ExecutionHold, ExecutionMeta, ExecutionRecord, ParentRef, Positions, Verdict,
};
use sinew_protocol::jsonrpc::{Method, Request, Response, error_of};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::query::{Answer, ExecutionStatus, Query, QueryError, Summary};
use sinew_protocol::stream::{FLEET, PLANS, STREAMS, bucket};
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{
    Draft, NodeRequestIds, ResultArtifact, TaskExtra, WorkflowNodeRequest, WorkflowNodeResult, point_to,
    result_task,
};
use sinew_protocol::{ActivationKey, ExecutionId, Fault, ResultKey, ResultToken, Subject, TaskId, Token};

const NAMESPACE: &str = "prod";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

pub(crate) fn execution() -> ExecutionId {
    ExecutionId::of(NAMESPACE, "billing", "order-17")
}

fn activation() -> ActivationKey {
    ActivationKey::of(&execution(), "review", &[("each", 3)], 0)
}

fn task() -> TaskId {
    TaskId::of(&execution(), &activation(), 1)
}

fn caller() -> Token {
    Token::of("billing")
}

fn result_subject() -> Subject {
    let token = ResultToken::of(&ResultKey::new([7; 32]), &task());
    Subject::Result { shard: 3, agent: Token::of("reviewer"), execution: execution(), task: task(), token }
}

fn parent() -> ParentRef {
    ParentRef {
        execution: ExecutionId::of(NAMESPACE, "billing", "order-16"),
        task: task(),
        result_subject: result_subject().name(NAMESPACE),
        agent: "order intake".to_owned(),
    }
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "größe".to_owned())])
}

fn digest() -> String {
    "0f".repeat(32)
}

fn meta() -> ExecutionMeta {
    ExecutionMeta {
        execution: execution(),
        workflow: "order intake".to_owned(),
        dialect: "sam".to_owned(),
        plan: digest(),
        caller: caller(),
        user: "ada".to_owned(),
        user_config: json!({ "language": "de" }),
        session: "s-1".to_owned(),
        labels: labels(),
        created: 1_795_251_600_123,
        parent: Some(parent()),
        traceparent: Some(TRACE.to_owned()),
        start_digest: None,
        calling: None,
        idempotency_key: None,
        conversation: None,
    }
}

pub(crate) fn verdict() -> Verdict {
    Verdict {
        id: Token::of("0199f0c4a1b27def8123456789abcdef"),
        op: Operation::Cancel,
        caller: caller(),
        accepted: false,
        reason: "the execution has ended".to_owned(),
    }
}

fn record() -> ExecutionRecord {
    let rounds = vec![Bytes::from_static(b"\x08\x01\x10\x02"), Bytes::new()];
    let started = Verdict { op: Operation::Start, accepted: true, reason: String::new(), ..verdict() };
    ExecutionRecord { meta: meta(), rounds, commands: vec![started, verdict()], hold: None }
}

pub(crate) fn records() -> Vec<(&'static str, ExecutionRecord)> {
    let plain = ExecutionMeta {
        user: String::new(),
        user_config: Value::Null,
        session: String::new(),
        labels: BTreeMap::new(),
        parent: None,
        traceparent: None,
        ..meta()
    };
    let bare = ExecutionRecord { meta: plain, rounds: Vec::new(), commands: Vec::new(), hold: None };
    let digested = ExecutionMeta { start_digest: Some(digest()), ..meta() };
    let held = ExecutionRecord { meta: digested, hold: Some(hold()), ..record() };
    vec![("full", record()), ("bare", bare), ("held", held)]
}

fn hold() -> ExecutionHold {
    ExecutionHold { code: "SINEW-6061".to_owned(), reason: "three owners ended with it in hand".to_owned() }
}

pub(crate) fn commits() -> Vec<(&'static str, Commit)> {
    let commit =
        |entries| Commit { owner: Token::of("executor-1"), positions: Positions::at(17, 300), entries };
    let first = Entry { kind: EntryKind::Rounds, ..Entry::checkpoint(record()) };
    let verdict = Entry { commands: vec![verdict()], ..Entry::rounds(execution(), Vec::new()) };
    let more = Entry::rounds(execution(), vec![Bytes::from_static(b"\x08\x01")]);
    vec![
        ("first", commit(vec![first])),
        ("rounds", commit(vec![more.clone(), verdict])),
        ("checkpoint", commit(vec![Entry::checkpoint(record())])),
        ("closed", commit(vec![more.clone(), Entry::closed(execution())])),
        ("held", commit(vec![Entry { rounds: Vec::new(), hold: Some(hold()), ..more }])),
        ("positions_only", commit(Vec::new())),
    ]
}

pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let start = |input| StartCommand::new(execution(), "order intake", input);
    let full = StartCommand {
        version: Some(digest()),
        mode: json!({"dry_run": true, "given": {"fetch": {"n": 1}}, "from": ["review"], "until": ["send"]}),
        depth: 1,
        chain: vec!["outer".to_owned()],
        parent: Some(parent()),
        user: "ada".to_owned(),
        user_config: json!({ "language": "de" }),
        session: "s-1".to_owned(),
        labels: labels(),
        idempotency_key: Some("order-17".to_owned()),
        ..start(json!({"order": 17, "big": 9_007_199_254_740_993_u64}))
    };
    let elsewhere = StartCommand { input_artifact: Some(stored_at().to_string()), ..start(Value::Null) };
    let execution = execution();
    let approve = ApproveCommand {
        execution: execution.clone(),
        node: None,
        activation: None,
        data: Value::Null,
        comment: None,
        reject: false,
        member: None,
    };
    let reject = ApproveCommand {
        node: Some("ask".to_owned()),
        activation: Some(2),
        data: json!({"choice": "no"}),
        comment: Some("too dear".to_owned()),
        reject: true,
        ..approve.clone()
    };
    let nodes = vec!["review".to_owned(), "send".to_owned()];
    let plain = RetryCommand {
        execution: execution.clone(),
        nodes: Vec::new(),
        only: false,
        input: None,
        reason: String::new(),
    };
    vec![
        ("full", full.into()),
        ("plain", start(json!([1, null, "x"])).into()),
        ("elsewhere", elsewhere.into()),
        ("full", CancelCommand { execution: execution.clone(), reason: "wrong order".to_owned() }.into()),
        ("full", PauseCommand { execution: execution.clone(), reason: "maintenance".to_owned() }.into()),
        ("full", ResumeCommand { execution: execution.clone() }.into()),
        ("plain", approve.into()),
        ("reject", reject.into()),
        ("plain", plain.clone().into()),
        (
            "only",
            RetryCommand {
                nodes: nodes[..1].to_vec(),
                only: true,
                input: Some(json!({"n": 1})),
                ..plain.clone()
            }
            .into(),
        ),
        ("full", RetryCommand { nodes, reason: "the service is back".to_owned(), ..plain }.into()),
    ]
}

pub(crate) fn queries() -> Vec<(&'static str, Query)> {
    vec![("list", Query::List {}), ("get", Query::Get(execution())), ("status", Query::Status {})]
}

pub(crate) fn answers() -> Vec<(&'static str, Answer)> {
    let summary = |status: ExecutionStatus| Summary {
        execution: execution(),
        workflow: "order intake".to_owned(),
        status,
        caller: caller(),
        started: 1_795_251_600_123,
        ended: status.is_terminal().then_some(1_795_251_601_000),
        waiting: (status == ExecutionStatus::Waiting).then(|| "agent reviewer, retry 2 of 5".to_owned()),
        agents: Vec::new(),
        questions: (status == ExecutionStatus::Waiting).then_some(1),
        waits_for: Vec::new(),
        attributes: ExecutionAttributes { labels: labels(), ..ExecutionAttributes::default() },
        plan: None,
        usage: sinew_protocol::usage::ModelTotals::default(),
    };
    vec![
        ("executions", Answer::Executions(ExecutionStatus::ALL.map(summary).to_vec())),
        ("status", Answer::Status(json!({"open": 3}))),
        ("not_found", Answer::Error(QueryError::NotFound)),
        ("bad_query", Answer::Error(QueryError::BadQuery)),
        ("not_owner", Answer::Error(QueryError::NotOwner)),
    ]
}

pub(crate) fn deployment() -> Deployment {
    Deployment {
        name: "order intake".to_owned(),
        digest: digest(),
        dialect: "sam".to_owned(),
        description: "Takes orders".to_owned(),
        card: serde_json::to_value(&cards()[1].1).unwrap(),
        mermaid: "graph TD".to_owned(),
        at: 1_795_251_600_123,
        by: "ops".to_owned(),
        author_version: None,
        pause: None,
    }
}

fn stored_at() -> StoredAt {
    let artifact = ArtifactRef { name: "input_review.json".parse().unwrap(), version: Some(0) };
    let uri = ArtifactUri {
        app: "order intake".to_owned(),
        user: "ada".to_owned(),
        session: execution().to_string(),
        artifact,
    };
    let key = ObjectKey::derived(&[7; 32], "object");
    StoredAt { uri, execution: execution(), task: task(), sha256: digest(), key }
}

pub(crate) fn request(vocabulary: Vocabulary) -> SendMessageRequest {
    let data = MeshMessage::from(WorkflowNodeRequestData {
        workflow_name: "order intake".to_owned(),
        node_id: "review".to_owned(),
        input_schema: Some(json!({"type": "object"})),
        output_schema: Some(json!({"type": "string"})),
        suggested_output_filename: Some("order_intake_review_0a1b2c3d.json".to_owned()),
    });
    let parts = vec![data.to_part(vocabulary), Part::text("Review the order")];
    let message = Message::user(format!("{}-request", task()), parts).with_context_id(execution().as_str());
    let mut request = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    point_to(&mut request, &stored_at().to_string());
    let extra = TaskExtra {
        input: Some(json!({"order": 17})),
        instruction: Some("Review the order".to_owned()),
        context: json!({"rules": ["be brief"]}),
        tag: "work".to_owned(),
        activation: activation(),
        attempt: 1,
        deadline: Some(1_795_251_660_123),
        result_subject: result_subject().name(NAMESPACE),
    };
    extra.put(&mut request);
    request
}

/// A task at a node endpoint: everything, and what a request has at least.
pub(crate) fn node_requests() -> Vec<(&'static str, Vec<u8>)> {
    let (execution, task, activation) = (execution(), task(), activation());
    let token = ResultToken::of(&ResultKey::new([7; 32]), &task);
    let ids = NodeRequestIds {
        execution: &execution,
        task: &task,
        activation: &activation,
        attempt: 1,
        token: &token,
    };
    let input = json!({"order": 17});
    let bare = WorkflowNodeRequest::new(&ids, &input);
    let mut full = bare.clone();
    full.workflow_name = Cow::Borrowed("order intake");
    full.node_id = Cow::Borrowed("each_3");
    full.input_schema = Some(Cow::Owned(json!({"type": "object"})));
    full.output_schema = Some(Cow::Owned(json!({"type": "string"})));
    full.suggested_output_filename = Cow::Borrowed("order_intake_review_0a1b2c3d.json");
    full.deadline = Some(1_795_251_660_123);
    full.user = Some(Cow::Borrowed("ada"));
    full.purpose = Cow::Borrowed("work");
    full.node = Some(Cow::Borrowed("review"));
    full.path = vec![("each".to_owned(), 3)];
    full.instruction = Some(Cow::Borrowed("Review the order"));
    full.context = Some(Cow::Owned(json!({"rules": ["be brief"]})));
    full.traceparent = Some(Cow::Borrowed(TRACE));
    vec![("request_bare", bare.to_bytes()), ("request_full", full.to_bytes())]
}

/// Answers at a node endpoint.
pub(crate) fn node_results() -> Vec<(&'static str, Vec<u8>)> {
    let task = task();
    let artifact = |name: &str, media_type: &str, bytes: &'static [u8]| {
        ResultArtifact::inline(name.parse().unwrap(), 0, media_type, &Bytes::from_static(bytes)).unwrap()
    };
    let output = artifact("out.json", "application/json", br#"{"ok":true}"#);
    let end = Ok(output.reference());
    let artifacts = [output, artifact("note.txt", "text/plain", b"fine")];
    let fault = Fault::timeout("SINEW-5104", "the handler did not answer in time");
    let busy =
        Fault::error("SINEW-5113", "the agent has no room for another task").with_retry_after_ms(1_000);
    let failure = Err(fault);
    let mut costly = WorkflowNodeResult::of_end(&task, &end, &artifacts[..1]);
    (costly.usage, costly.retry_count) = (json!({"input_tokens": 12}), 1);
    costly.events = vec![json!({"kind": "tool"})];
    vec![
        ("result_output", costly.to_bytes()),
        ("result_artifacts", WorkflowNodeResult::of_end(&task, &end, &artifacts).to_bytes()),
        ("result_failure", WorkflowNodeResult::of_end(&task, &failure, &[]).to_bytes()),
        ("result_refused", WorkflowNodeResult::refusal(&task, &busy).to_bytes()),
    ]
}

/// The task that node requests and results are about.
pub(crate) fn node_task() -> TaskId {
    task()
}

pub(crate) fn results(vocabulary: Vocabulary) -> Vec<(&'static str, Task)> {
    let inline = |name: &str, media_type: &str, bytes: &'static [u8]| {
        ResultArtifact::inline(name.parse().unwrap(), 0, media_type, &Bytes::from_static(bytes)).unwrap()
    };
    let big = ArtifactMeta {
        name: "big.bin".parse().unwrap(),
        version: 1,
        media_type: "application/octet-stream".to_owned(),
        sha256: digest(),
        size: 1 << 30,
    };
    let artifacts = [
        inline("out.json", "application/json", br#"{"ok":true}"#),
        inline("note.txt", "text/plain", b"fine"),
        inline("pic.png", "image/png", b"\x89PNG"),
        ResultArtifact::stored(big, &stored_at()),
    ];
    let task = task();
    let result = |end| Draft {
        session: "s-1",
        vocabulary,
        timestamp: Some("2026-11-21T09:00:00.123Z".to_owned()),
        ..Draft::new(&task, end)
    };
    let success = Draft {
        artifacts: &artifacts,
        text: "Reviewed",
        usage: json!({"input_tokens": 12, "output_tokens": 3}),
        events: vec![json!({"tool": "search"})],
        retries: 1,
        ..result(Ok(artifacts[0].reference()))
    };
    let busy = Fault::error("SINEW-5033", "the service is busy").with_retry_after_ms(1_500);
    let invalid = Fault::invalid("SINEW-5103", "the output breaks its schema").with_details(["/a: missing"]);
    vec![
        ("success", result_task(success)),
        ("error", result_task(result(Err(busy)))),
        ("invalid", result_task(result(Err(invalid)))),
        ("cancelled", result_task(result(Err(Fault::cancelled("SINEW-5105", "the task was cancelled"))))),
    ]
}

pub(crate) fn calls() -> Vec<(&'static str, Request)> {
    let id = json!({"id": task().as_str()});
    let push = json!({"taskId": task().as_str(), "id": "p1"});
    let params = |method: Method| match method {
        Method::Core(CoreMethod::SendMessage | CoreMethod::SendStreamingMessage) => {
            serde_json::to_value(request(Vocabulary::Current)).unwrap()
        }
        Method::Core(CoreMethod::ListTasks) => json!({"contextId": "s-1", "pageSize": 10}),
        Method::Core(CoreMethod::CreateTaskPushNotificationConfig) => {
            json!({"taskId": task().as_str(), "url": "https://example.com/hook"})
        }
        Method::Core(
            CoreMethod::GetTaskPushNotificationConfig | CoreMethod::DeleteTaskPushNotificationConfig,
        ) => push.clone(),
        Method::Core(CoreMethod::ListTaskPushNotificationConfigs) => json!({"taskId": task().as_str()}),
        Method::Core(CoreMethod::GetExtendedAgentCard) | Method::GetAgentCard => json!({}),
        Method::Core(_) => id.clone(),
    };
    Method::all().map(|method| (method.as_str(), Request::new("c-1", method, &params(method)))).collect()
}

pub(crate) fn rpc_answers() -> Vec<(&'static str, Response)> {
    let codes = [
        ErrorCode::ParseError,
        ErrorCode::InvalidRequest,
        ErrorCode::MethodNotFound,
        ErrorCode::InvalidParams,
        ErrorCode::InternalError,
        ErrorCode::TaskNotFound,
        ErrorCode::TaskNotCancelable,
        ErrorCode::PushNotificationNotSupported,
        ErrorCode::UnsupportedOperation,
        ErrorCode::ContentTypeNotSupported,
        ErrorCode::InvalidAgentResponse,
        ErrorCode::ExtendedAgentCardNotConfigured,
        ErrorCode::ExtensionSupportRequired,
        ErrorCode::VersionNotSupported,
    ];
    let error = |code: ErrorCode| {
        (code.metric_label(), Response::error(json!("c-1"), &A2aError::new(code, code.default_message())))
    };
    let busy = Fault::error("SINEW-5033", "the service is busy").with_retry_after_ms(1_500);
    let task = results(Vocabulary::Current).remove(0).1;
    let task = Response::ok(json!("c-1"), json!({"task": task}));
    let mut all = vec![("task", task), ("fault", Response::error(Value::Null, &error_of(&busy)))];
    all.extend(codes.map(error));
    all
}

pub(crate) fn cards() -> Vec<(&'static str, AgentCard)> {
    let agent = Announcement {
        name: "reviewer".to_owned(),
        description: "Reviews orders".to_owned(),
        version: "2.1.0".to_owned(),
        input_schema: Some(json!({"type": "object"})),
        delivery: Delivery::Direct,
        ..Announcement::default()
    };
    let skill = AgentSkill {
        id: "intake".to_owned(),
        name: "Intake".to_owned(),
        description: "Takes orders".to_owned(),
        tags: vec!["orders".to_owned()],
        examples: None,
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    };
    let workflow = |visualisation| Announcement {
        name: "order intake".to_owned(),
        kind: AgentKind::Workflow,
        output_schema: Some(json!({"type": "string"})),
        skills: vec![skill.clone()],
        visualisation: Some(visualisation),
        ..Announcement::default()
    };
    let config = Visualisation::Config(json!({"nodes": []}));
    vec![
        ("agent", agent.card(NAMESPACE)),
        ("workflow_spec", workflow(Visualisation::Mermaid("graph TD".to_owned())).card(NAMESPACE)),
        ("workflow_current", workflow(config).card(NAMESPACE)),
    ]
}

/// Every name on the wire.
pub(crate) fn names() -> Value {
    let (agent, execution, task) = (Token::of("order reviewer"), execution(), task());
    let subjects = [
        Subject::Journal { shard: 3 },
        Subject::History { execution: execution.clone() },
        Subject::Command {
            shard: 3,
            operation: Operation::Start,
            caller: caller(),
            id: Token::of(execution.as_str()),
        },
        Subject::Start { shard: 3, caller: caller(), id: Token::of(execution.as_str()) },
        Subject::Task { agent: agent.clone(), execution: execution.clone(), task: task.clone() },
        result_subject(),
        Subject::Event {
            workflow: Token::of("order intake"),
            execution: execution.clone(),
            kind: Token::of("command"),
        },
        Subject::Card { agent: agent.clone() },
        Subject::Rpc { agent: agent.clone(), method: Token::of("SendMessage"), caller: caller() },
        Subject::Node { agent: agent.clone() },
        Subject::Progress { execution, task: task.clone() },
        Subject::Control { agent: agent.clone(), task },
        Subject::Replica { agent, process: Token::of("all") },
        Subject::Query { shard: 3 },
        Subject::Workflow { name: Token::of("order intake") },
        Subject::Quarantine { stream: Token::of("RESULTS"), seq: 300 },
    ];
    let buckets = [FLEET, PLANS].map(|kind| bucket(NAMESPACE, kind));
    let patterns: BTreeMap<_, _> = sinew_protocol::subject::TABLE.into();
    json!({
        "subjects": subjects.map(|subject| subject.name(NAMESPACE)),
        "patterns": patterns,
        "headers": sinew_protocol::header::TABLE.iter().map(|(name, what)| [name, what]).collect::<Vec<_>>(),
        "streams": STREAMS.map(|stream| [stream.name(NAMESPACE), stream.subjects(NAMESPACE)]),
        "buckets": buckets,
        "artifact": {
            "address": stored_at().to_string(),
            "object": stored_at().object(),
            "pieces": ([0, 1].map(|nth| stored_at().key.piece(&self::execution(), nth).name(NAMESPACE))),
        },
    })
}
