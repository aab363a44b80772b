//! Artifacts: whoever has an address reads that artifact, and nobody lists, reads, replaces or deletes another one.

use serde_json::{Value, json};
use sinew_mesh::{Connect, Mesh};
use tokio::runtime::Runtime;

use crate::permission::world::{NORTH, PASSWORD, World, accounts_with, acks_in_both_shapes};

const GUEST: &str = "Guest";
/// Text of an artifact, repeated until it is too large for a message.
const TEXT: &str = "payroll of ada ";

fn open(runtime: &Runtime, world: &World, user: &str) -> Mesh {
    let connect = Connect {
        url: Some(world.server.url()),
        user: Some(user.to_owned()),
        password: Some(PASSWORD.to_owned()),
        namespace: Some(NORTH.namespace.to_owned()),
        role: "test",
        ..Connect::default()
    };
    runtime.block_on(connect.open()).expect("a user may connect")
}

#[test]
fn nobody_reads_or_destroys_an_artifact_without_its_address() {
    std::thread::scope(|both| {
        for more in acks_in_both_shapes() {
            both.spawn(move || attack(&World::with(&accounts_with(&[], &[GUEST]), &more)));
        }
    });
}

fn attack(world: &World) {
    let runtime = Runtime::new().unwrap();
    world.ok(&NORTH, "provisioner", &["mesh", "provision", "--shards", "2"]);
    let text = TEXT.repeat(20_000);
    world.write("payroll.txt", &text);
    let address = world.ok(&NORTH, "client", &["artifact", "put", "payroll.txt"]);

    let mut root = world.wire(&NORTH, "root");
    let info = root.request("$JS.API.STREAM.INFO.north_ARTIFACTS", r#"{"subjects_filter":">"}"#).unwrap();
    let info: Value = serde_json::from_str(&info.body).unwrap();
    let pieces: Vec<&String> = info["state"]["subjects"].as_object().unwrap().keys().collect();
    assert_eq!(pieces.len(), 3, "{info}");
    // The agent and the guest are told the subject of every piece, which they cannot list.
    for user in ["agent", GUEST] {
        let mut wire = world.wire(&NORTH, user);
        for (call, body) in [
            ("DIRECT.GET.north_ARTIFACTS", json!({"seq": 1})),
            ("DIRECT.GET.north_ARTIFACTS", json!({"next_by_subj": "north.v1.artifact.>", "seq": 1})),
            ("DIRECT.GET.north_ARTIFACTS", json!({"multi_last": ["north.v1.artifact.>"]})),
            ("DIRECT.GET.north_ARTIFACTS.north.v1.artifact.>", Value::Null),
            ("DIRECT.GET.OBJ_north_ARTIFACTS", json!({"seq": 1})),
            ("STREAM.MSG.GET.north_ARTIFACTS", json!({"seq": 1})),
            ("STREAM.MSG.DELETE.north_ARTIFACTS", json!({"seq": 1})),
            ("STREAM.PURGE.north_ARTIFACTS", Value::Null),
            ("STREAM.INFO.north_ARTIFACTS", json!({"subjects_filter": ">"})),
            ("CONSUMER.CREATE.north_ARTIFACTS.c.north.v1.artifact.>", json!({"config": {}})),
        ] {
            let call = format!("$JS.API.{call}");
            let refused = wire.request(&call, &body.to_string()).expect_err(&call);
            assert!(refused.contains("Permissions Violation"), "{user} {call}: {refused}");
        }
        // A pattern in the place of the subject is answered with a piece, which is sealed.
        let get = "$JS.API.DIRECT.GET.north_ARTIFACTS";
        let subjects = pieces.iter().map(|piece| format!("{get}.{piece}"));
        for call in subjects.chain([format!("{get}.north.v1.artifact.*.*")]) {
            let read = wire.request(&call, "").unwrap().body;
            assert!(read.len() > 10_000 && !read.contains("payroll"), "{user} {call}");
        }
        for piece in &pieces {
            for (headers, body) in [
                (&[][..], r#"{"deleted":true}"#),
                (&[][..], ""),
                (&[("Nats-Rollup", "sub")][..], "other"),
                (&[("Nats-Rollup", "all")][..], "other"),
                (&[("Nats-TTL", "1s")][..], "other"),
            ] {
                let said = wire.request_with(piece, headers, body).unwrap().body;
                assert!(said.contains("\"error\""), "{user} {headers:?} {body}: {said}");
            }
        }
        let mesh = open(&runtime, world, &NORTH.user(user));
        let read = |address: &str| runtime.block_on(mesh.artifacts().fetch(address));
        assert_eq!(read(&address).unwrap(), text, "{user} reads what it has the address of");
        let (start, _) = address.split_once("&key=").unwrap();
        assert_eq!(read(start).unwrap_err().code(), "SINEW-5004");
        let other = format!("{start}&key={}", "A".repeat(43));
        assert_eq!(read(&other).unwrap_err().code(), "SINEW-7051");
    }
    let mesh = open(&runtime, world, &NORTH.user("client"));
    assert_eq!(runtime.block_on(mesh.artifacts().fetch(&address)).unwrap(), text);
}
