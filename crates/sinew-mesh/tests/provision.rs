//! Provisioning: made once, set right when it differs, refused where it would break; read by everybody.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::num::NonZeroU32;
use std::time::Duration;

use sinew_mesh::async_nats::jetstream::stream::{Config, DiscardPolicy};
use sinew_mesh::async_nats::{self, HeaderMap};
use sinew_mesh::query::Answer;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, MeshError, Provision};
use sinew_protocol::stream::STREAMS;
use sinew_protocol::{Subject, Token, Vocabulary};

async fn server() -> Server {
    Server::start(ServerOptions::default()).await.unwrap()
}

async fn mesh(server: &Server, namespace: &str) -> Mesh {
    Mesh::new(async_nats::connect(server.url()).await.unwrap(), namespace, "tester")
}

fn shards(shards: u32) -> Provision {
    Provision { shards: NonZeroU32::new(shards), ..Provision::default() }
}

async fn config(mesh: &Mesh, stream: &str) -> Config {
    mesh.admin().jetstream().get_stream(stream).await.unwrap().cached_info().config.clone()
}

#[tokio::test]
async fn a_mesh_is_made_once_and_read_by_everybody() {
    let server = server().await;
    let maker = mesh(&server, "prod").await;
    let missing = maker.admin().layout().await.unwrap_err();
    assert!(matches!(missing, MeshError::NotProvisioned { .. }), "{missing}");
    assert!(matches!(maker.admin().check().await.unwrap_err(), MeshError::NotProvisioned { .. }));

    let changes = maker.admin().provision(&shards(4)).await.unwrap();
    // The bucket of the executors, its settings, an object store, and the streams without that of events.
    assert_eq!(changes.len(), STREAMS.len() + 2, "{changes:?}");
    assert!(changes.iter().all(|change| change.differed.is_empty()));
    assert_eq!(maker.admin().check().await.unwrap(), []);
    assert_eq!(maker.admin().provision(&Provision::default()).await.unwrap(), []);

    // A process that asked too early asks again.
    for mesh in [maker, mesh(&server, "prod").await] {
        let layout = mesh.admin().layout().await.unwrap();
        assert_eq!(layout.shards.get(), 4);
        assert_eq!(layout.retention, Duration::from_hours(7 * 24));
        assert_eq!(layout.max_payload, 1024 * 1024);
    }
}

#[tokio::test]
async fn meshes_share_a_server_and_nothing_else() {
    let server = server().await;
    let (one, two) = (mesh(&server, "one").await, mesh(&server, "t.w.o").await);
    one.admin().provision(&shards(2)).await.unwrap();
    assert!(matches!(two.admin().layout().await, Err(MeshError::NotProvisioned { .. })));
    two.admin().provision(&shards(3)).await.unwrap();
    assert_eq!(
        (one.admin().layout().await.unwrap().shards.get(), two.admin().layout().await.unwrap().shards.get()),
        (2, 3)
    );
    let task = sinew_protocol::TaskId::parse("task").unwrap();
    let execution = sinew_protocol::ExecutionId::parse("execution").unwrap();
    let proof = |mesh: Mesh| {
        let task = task.clone();
        async move {
            sinew_protocol::ResultToken::of(&mesh.admin().result_key().await.unwrap(), &task)
                .as_str()
                .to_owned()
        }
    };
    assert_ne!(proof(one.clone()).await, proof(two.clone()).await);
    assert_eq!(proof(one.clone()).await, proof(mesh(&server, "one").await).await);
    let history = Subject::History { execution };
    one.admin().jetstream().publish(one.subject(&history), "x".into()).await.unwrap().await.unwrap();
    let stream = two.admin().jetstream().get_stream(STREAMS[1].name("t.w.o")).await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 0);
}

#[tokio::test]
async fn shards_never_change_and_the_rest_may() {
    let server = server().await;
    let mesh = mesh(&server, "m").await;
    mesh.admin().provision(&shards(4)).await.unwrap();
    let refused = mesh.admin().provision(&shards(8)).await.unwrap_err();
    assert!(matches!(refused, MeshError::ShardsFixed { have: 4, asked: 8, .. }), "{refused}");
    mesh.admin().provision(&shards(4)).await.unwrap();

    let retention = Some(Duration::from_hours(1));
    let changes = mesh.admin().provision(&Provision { retention, ..Provision::default() }).await.unwrap();
    let names: Vec<_> = changes.iter().map(|change| change.of.as_str()).collect();
    assert!(names.contains(&"settings") && names.contains(&"m_TASKS"), "{names:?}");
    assert!(!names.contains(&"m_JOURNAL") && !names.contains(&"m_WORKFLOWS"), "{names:?}");
    assert_eq!(config(&mesh, "m_TASKS").await.max_age, Duration::from_hours(1));
    assert_eq!(config(&mesh, "m_ARTIFACTS").await.max_age, Duration::from_hours(2));
    assert_eq!(config(&mesh, "m_JOURNAL").await.max_age, Duration::ZERO);
    // The mirror keeps a card for longer than the stream of cards.
    assert_eq!(config(&mesh, "m_AGENTS").await.max_age, Duration::from_hours(1));
    assert_eq!(config(&mesh, "m_AGENTS").await.mirror.unwrap().name, "m_CARDS");
    assert_eq!(config(&mesh, "m_CARDS").await.max_age, Duration::from_mins(1));
    // Settings that are not given stay.
    assert_eq!(mesh.admin().provision(&Provision::default()).await.unwrap(), []);
}

/// A way to break a stream, the stream, and the words in which it is reported.
type Breakage = (&'static str, fn(&mut Config), &'static str);

const BREAKAGES: [Breakage; 9] = [
    ("m_JOURNAL", |c| c.max_age = Duration::from_hours(1), "m_JOURNAL: max_age is 3600s, must be unlimited"),
    ("m_JOURNAL", |c| c.max_messages = 10, "m_JOURNAL: max_msgs is 10, must be unlimited"),
    ("m_JOURNAL", |c| c.discard = DiscardPolicy::Old, "m_JOURNAL: discard is old, must be new"),
    ("m_JOURNAL", |c| c.allow_direct = true, "m_JOURNAL: allow_direct is true, must be false"),
    ("m_CARDS", |c| c.allow_rollup = true, "m_CARDS: allow_rollup_hdrs is true, must be false"),
    (
        "m_RESULTS",
        |c| c.discard_new_per_subject = false,
        "m_RESULTS: discard_new_per_subject is false, must be true",
    ),
    ("KV_m_FLEET", |c| c.max_age = Duration::from_mins(9), "KV_m_FLEET: max_age is 540s, must be unlimited"),
    ("OBJ_m_PLANS", |c| c.allow_rollup = true, "OBJ_m_PLANS: allow_rollup_hdrs is true, must be false"),
    (
        "m_TASKS",
        |c| c.subjects.push("other.>".into()),
        "m_TASKS: subjects is m.v1.task.> other.>, must be m.v1.task.>",
    ),
];

#[tokio::test]
async fn what_differs_is_named_and_set_right() {
    let server = server().await;
    let mesh = mesh(&server, "m").await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    for (stream, breaks, words) in BREAKAGES {
        let mut config = config(&mesh, stream).await;
        breaks(&mut config);
        mesh.admin().jetstream().update_stream(&config).await.unwrap();
        let found: Vec<_> = mesh.admin().check().await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(found, [words]);
        let refused = mesh.admin().verify().await.unwrap_err();
        assert!(matches!(refused, MeshError::Differs { .. }) && refused.to_string().contains(words));
        let changes = mesh.admin().provision(&Provision::default()).await.unwrap();
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].of, stream);
        mesh.admin().verify().await.unwrap();
    }
    mesh.admin().provision(&Provision { keep_events: Some(true), ..Provision::default() }).await.unwrap();
    mesh.admin().jetstream().delete_stream("m_EVENTS").await.unwrap();
    let found = mesh.admin().check().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].to_string(), "m_EVENTS: stream is missing, must be there");
    mesh.admin().provision(&Provision::default()).await.unwrap();
    mesh.admin().verify().await.unwrap();
}

#[tokio::test]
async fn what_an_operator_set_beside_it_stays() {
    let server = server().await;
    let mesh = mesh(&server, "m").await;
    mesh.admin().provision(&Provision { keep_events: Some(true), ..Provision::default() }).await.unwrap();
    let mut config = config(&mesh, "m_EVENTS").await;
    config.max_message_size = 500_000;
    config.metadata.insert("team".into(), "billing".into());
    mesh.admin().jetstream().update_stream(&config).await.unwrap();
    mesh.admin().verify().await.unwrap();
    let retention = Some(Duration::from_mins(1));
    mesh.admin().provision(&Provision { retention, ..Provision::default() }).await.unwrap();
    let config = self::config(&mesh, "m_EVENTS").await;
    assert_eq!((config.max_message_size, config.max_age), (500_000, Duration::from_mins(1)));
    assert_eq!(config.metadata.get("team").map(String::as_str), Some("billing"));
}

#[tokio::test]
async fn many_provisioners_at_once_agree() {
    let server = server().await;
    let asked: Vec<u32> = (1..=8).collect();
    let makers = asked.iter().map(|n| {
        let url = server.url();
        async move {
            let mesh = Mesh::new(async_nats::connect(url).await.unwrap(), "m", "tester");
            (*n, mesh.admin().provision(&shards(*n)).await)
        }
    });
    let ends = futures_util::future::join_all(makers).await;
    let mesh = mesh(&server, "m").await;
    let have = mesh.admin().layout().await.unwrap().shards.get();
    for (asked, end) in ends {
        match end {
            Ok(_) => assert_eq!(asked, have),
            Err(error) => {
                assert!(matches!(error, MeshError::ShardsFixed { have: h, .. } if h == have), "{error}");
            }
        }
    }
    mesh.admin().verify().await.unwrap();
    mesh.admin().result_key().await.unwrap();
}

#[tokio::test]
async fn many_provisioners_of_one_mind_all_succeed() {
    let server = server().await;
    let makers = (0..8).map(|_| {
        let url = server.url();
        async move {
            let mesh = Mesh::new(async_nats::connect(url).await.unwrap(), "m", "tester");
            mesh.admin().provision(&shards(4)).await
        }
    });
    for end in futures_util::future::join_all(makers).await {
        end.unwrap();
    }
    mesh(&server, "m").await.admin().verify().await.unwrap();
}

#[tokio::test]
async fn bad_options_are_refused_before_anything_is_made() {
    let server = server().await;
    let mesh = mesh(&server, "m").await;
    for options in [
        shards(1_025),
        Provision { replicas: Some(0), ..Provision::default() },
        Provision { replicas: Some(6), ..Provision::default() },
        Provision { retention: Some(Duration::ZERO), ..Provision::default() },
        Provision { storage_limit: Some(0), ..Provision::default() },
        Provision { storage_limit: Some(u64::MAX), ..Provision::default() },
    ] {
        let error = mesh.admin().provision(&options).await.unwrap_err();
        assert_eq!(error.code(), "SINEW-7020", "{error}");
    }
    assert!(matches!(mesh.admin().layout().await, Err(MeshError::NotProvisioned { .. })));
}

#[tokio::test]
async fn copies_a_server_cannot_keep_are_its_refusal() {
    let server = server().await;
    let mesh = mesh(&server, "m").await;
    let error =
        mesh.admin().provision(&Provision { replicas: Some(3), ..Provision::default() }).await.unwrap_err();
    assert_eq!(error.code(), "SINEW-7011", "{error}");
    // A failed attempt stores no settings, so the mesh can still be provisioned.
    mesh.admin().provision(&Provision::default()).await.unwrap();
    mesh.admin().verify().await.unwrap();
}

#[tokio::test]
async fn a_refused_change_leaves_a_mesh_as_it_was() {
    // The account has room for two of the reserved streams, so the server refuses a later one.
    let extra =
        "accounts { A { jetstream { max_file: 3MB }, users: [{ user: a, password: a }] } }\nno_auth_user: a";
    let options = ServerOptions { config_extra: Some(extra.to_owned()), ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    let mesh = mesh(&server, "m").await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    let before = mesh.admin().layout().await.unwrap();
    for refused in [
        Provision { replicas: Some(3), ..Provision::default() },
        Provision { replicas: Some(3), retention: Some(Duration::from_hours(1)), ..Provision::default() },
        Provision { storage_limit: Some(1024 * 1024), ..Provision::default() },
    ] {
        let error = mesh.admin().provision(&refused).await.unwrap_err();
        assert_eq!(error.code(), "SINEW-7011", "{error}");
        assert_eq!(mesh.admin().check().await.unwrap(), [], "{refused:?}");
        let fresh = self::mesh(&server, "m").await;
        assert_eq!(fresh.admin().layout().await.unwrap(), before, "{refused:?}");
    }
    assert_eq!(mesh.admin().provision(&Provision::default()).await.unwrap(), []);
}

#[tokio::test]
async fn damaged_settings_are_said_to_be_damaged() {
    let server = server().await;
    for (body, words) in [
        ("{", "EOF"),
        (r#"{"version":2,"shards":1,"replicas":1,"retention":60}"#, "version 2"),
        (r#"{"version":1,"shards":0,"replicas":1,"retention":60}"#, "nonzero"),
        (r#"{"version":1,"shards":4000000000,"replicas":1,"retention":60}"#, "at most"),
    ] {
        let mesh = mesh(&server, "m").await;
        mesh.admin().provision(&Provision::default()).await.unwrap_or_default();
        mesh.admin().jetstream().publish("$KV.m_FLEET.settings", body.into()).await.unwrap().await.unwrap();
        let error = mesh.admin().layout().await.unwrap_err();
        assert!(error.to_string().contains(words), "{body}: {error}");
        assert_eq!(mesh.admin().provision(&Provision::default()).await.unwrap_err().code(), error.code());
    }
}

#[tokio::test]
async fn no_stream_can_be_emptied_or_misled_by_a_header() {
    let server = server().await;
    let mesh = mesh(&server, "m").await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    let subjects = [
        "m.v1.journal.0",
        "m.v1.history.a",
        "m.v1.event.w.e.k",
        "m.v1.card.other",
        "m.v1.workflow.w",
        "m.v1.artifact.g.p",
        "$O.m_PLANS.M.a",
        "$KV.m_FLEET.shard.1",
        "m.v1.result.0.a.e.s.t",
        "m.v1.task.a.e.s",
        "m.v1.command.0.start.c.e",
        "m.v1.quarantine.TASKS.1",
    ];
    let card = Subject::Card { agent: Token::of("kept") };
    mesh.admin().jetstream().publish(mesh.subject(&card), "{}".into()).await.unwrap().await.unwrap();
    for subject in subjects {
        for (name, value) in [
            ("Nats-Rollup", "all"),
            ("Nats-Rollup", "sub"),
            ("Nats-Schedule", "@every 1s"),
            ("Nats-Incr", "+1"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            let sent = mesh
                .admin()
                .jetstream()
                .publish_with_headers(subject, headers, "x".into())
                .await
                .unwrap()
                .await;
            assert!(sent.is_err(), "{subject} takes {name}: {value}");
        }
    }
    let stream = mesh.admin().jetstream().get_stream("m_CARDS").await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 1);
}

/// Codes of the problems that are found, each with whether it is severe.
async fn problems(mesh: &Mesh) -> Vec<(&'static str, bool)> {
    mesh.admin().find_problems().await.iter().map(|problem| (problem.code, problem.severe)).collect()
}

#[tokio::test]
async fn problems_of_a_server_are_found() {
    // A healthy server has none, also before anything was made on it.
    let sound = server().await;
    let mesh = self::mesh(&sound, "m").await;
    assert_eq!(problems(&mesh).await, []);
    mesh.admin().provision(&Provision { storage_limit: Some(1024 * 1024), ..shards(2) }).await.unwrap();
    assert_eq!(problems(&mesh).await, []);

    // A stream that refuses messages when it is full, almost and entirely.
    for (bytes, severe) in [(900_000, false), (135_000, true)] {
        let subject = format!("m.v1.command.0.x{bytes}");
        mesh.admin().jetstream().publish(subject, vec![b'x'; bytes].into()).await.unwrap().await.unwrap();
        assert_eq!(problems(&mesh).await, [("SINEW-7040", severe)]);
    }
    mesh.admin().jetstream().get_stream("m_COMMANDS").await.unwrap().purge().await.unwrap();

    // An owner that has read more than there is.
    let mut asked = mesh.services().serve_queries(1).await.unwrap();
    assert!(mesh.fleet().claim(1, "ghost", 0).await.unwrap());
    let answering = tokio::spawn(async move {
        for commands in [1, 1_000_000] {
            let question = asked.next().await.unwrap();
            let positions = serde_json::json!({ "positions": { "commands": commands, "results": 0 } });
            question.answer(Answer::Status(positions)).await.unwrap();
        }
        asked
    });
    assert_eq!(problems(&mesh).await, []);
    assert_eq!(problems(&mesh).await, [("SINEW-7042", true)]);
    // From now on it listens and says nothing.
    let _asked = answering.await.unwrap();
    assert_eq!(problems(&mesh).await, [("SINEW-7041", true)]);

    let options =
        ServerOptions { config_extra: Some("max_payload: 65536".into()), ..ServerOptions::default() };
    let small = Server::start(options).await.unwrap();
    assert_eq!(problems(&self::mesh(&small, "m").await).await, [("SINEW-7043", true)]);
}

/// A mesh that an older version made keeps its format, and is told of it; a new one can erase messages.
#[tokio::test]
async fn messages_of_new_meshes_can_be_erased() {
    let server = server().await;
    let new = mesh(&server, "new").await;
    new.admin().provision(&shards(1)).await.unwrap();
    // As an older version has made them: settings without a format, streams that refuse deletion.
    let old = mesh(&server, "old").await;
    old.admin().provision(&shards(1)).await.unwrap();
    let settings = r#"{"version":1,"shards":1,"replicas":1,"retention":604800,"keep_events":false}"#;
    old.admin().jetstream().publish("$KV.old_FLEET.settings", settings.into()).await.unwrap().await.unwrap();
    for stream in ["old_JOURNAL", "old_HISTORY"] {
        let mut config = config(&old, stream).await;
        config.deny_delete = true;
        old.admin().jetstream().update_stream(&config).await.unwrap();
    }
    let old = mesh(&server, "old").await;
    for (mesh, is_erasable) in [(&new, true), (&old, false)] {
        mesh.admin()
            .provision(&Provision { retention: Some(Duration::from_hours(1)), ..Provision::default() })
            .await
            .unwrap();
        mesh.admin().verify().await.unwrap();
        let layout = mesh.admin().layout().await.unwrap();
        assert_eq!(layout.has_erasable_messages, is_erasable);
        // A mesh of an earlier version keeps its vocabulary.
        let vocabulary = if is_erasable { Vocabulary::Spec } else { Vocabulary::Current };
        assert_eq!(layout.vocabulary, vocabulary);
        for kind in ["JOURNAL", "HISTORY"] {
            let name = format!("{}_{kind}", mesh.namespace());
            assert_eq!(config(mesh, &name).await.deny_delete, !is_erasable, "{name}");
        }
        let problems = mesh.admin().find_problems().await;
        let told: Vec<_> = problems.iter().map(|problem| (problem.code, problem.severe)).collect();
        assert_eq!(told.contains(&("SINEW-7045", false)), !is_erasable, "{told:?}");
    }
    // Without settings, streams that an older version left are taken as they are.
    old.admin().jetstream().delete_stream("KV_old_FLEET").await.unwrap();
    let again = mesh(&server, "old").await;
    again.admin().provision(&shards(1)).await.unwrap();
    assert!(!again.admin().layout().await.unwrap().has_erasable_messages);
}

/// A mesh keeps events only if it is told to; one of an older version, which does not say it, goes on keeping them.
#[tokio::test]
async fn events_are_kept_by_those_who_want_them() {
    let server = server().await;
    let (plain, keeping) = (mesh(&server, "plain").await, mesh(&server, "keeping").await);
    plain.admin().provision(&shards(1)).await.unwrap();
    keeping.admin().provision(&Provision { keep_events: Some(true), ..shards(1) }).await.unwrap();
    for (mesh, keeps) in [(&plain, false), (&keeping, true)] {
        mesh.admin().provision(&Provision::default()).await.unwrap();
        assert_eq!(
            mesh.admin().layout().await.unwrap().keeps_events,
            keeps,
            "what is not named stays as it is"
        );
        assert_eq!(mesh.admin().check().await.unwrap(), []);
        let stream = format!("{}_EVENTS", mesh.namespace());
        assert_eq!(mesh.admin().jetstream().get_stream(stream).await.is_ok(), keeps);
    }
    // The settings as an older version has stored them.
    let old = r#"{"version":1,"shards":1,"replicas":1,"retention":604800}"#;
    let subject = "$KV.old_FLEET.settings";
    let old_mesh = mesh(&server, "old").await;
    old_mesh.admin().provision(&Provision { keep_events: Some(true), ..shards(1) }).await.unwrap();
    old_mesh.admin().jetstream().publish(subject, old.into()).await.unwrap().await.unwrap();
    assert!(mesh(&server, "old").await.admin().layout().await.unwrap().keeps_events);
}
