use std::path::Path;

use serde_json::json;

use super::*;

/// Every file contains one message three times: as `current`, as `spec`, and in any other form that
/// is `read`.
#[test]
fn messages_are_worded_as_their_vocabularies_demand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/messages");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= TYPES.len() - 2, "a message without a fixture");
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let fixture: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let message = MeshMessage::from_json(&fixture["current"]).unwrap();
        assert_eq!(message.to_json(Vocabulary::Current), fixture["current"], "{name}");
        assert_eq!(message.to_json(Vocabulary::Spec), fixture["spec"], "{name}");
        for vocabulary in [Vocabulary::Current, Vocabulary::Spec] {
            let json = message.to_json(vocabulary);
            assert_eq!(json["type"], message.kind(vocabulary), "{name}");
            assert_eq!(
                serde_json::from_slice::<Value>(&message.to_bytes(vocabulary)).unwrap(),
                json,
                "{name}"
            );
        }
        let others = fixture["read"].as_array().into_iter().flatten();
        for wording in others.chain([&fixture["spec"]]) {
            let read = MeshMessage::from_json(wording).unwrap_or_else(|e| panic!("{name}: {e}"));
            // The specification lacks some values, for instance for a cancellation.
            assert_eq!(read.to_json(Vocabulary::Spec), fixture["spec"], "{name}: {wording}");
        }
        let bytes = message.to_protobuf();
        assert_eq!(MeshMessage::from_protobuf(bytes.into()), Ok(message), "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let reason = |json: Value| MeshMessage::from_json(&json).unwrap_err().to_string();
    assert_eq!(reason(json!({"type": "agent_progress"})), "no mesh message has the type \"agent_progress\"");
    assert_eq!(reason(json!([1])), "no mesh message has the type \"\"");
    assert!(reason(json!({"type": "workflow_node_result"})).contains("missing field `status`"));
    let bad = json!({"type": "workflow_node_result", "status": "success", "artifact_name": "../x"});
    assert!(reason(bad).contains("invalid character"));
    assert!(reason(json!({"type": "workflow_node_execution_start", "node_type": "a"})).contains("node_id"));
    assert!(matches!(MeshMessage::from_slice(b"{"), Err(BadMessage::Bytes(_))));
    assert!(matches!(MeshMessage::from_protobuf(vec![0xFF].into()), Err(BadMessage::Bytes(_))));
    assert!(MeshMessage::from_protobuf(Vec::new().into()).is_err());
}

#[test]
fn a_message_is_found_among_other_parts() {
    let result = MeshMessage::from(WorkflowNodeResultData::error("no"));
    let parts = [
        a2a::Part::text("hello"),
        a2a::Part::data(json!({"type": "something else"})),
        result.to_part(Vocabulary::Spec),
    ];
    assert_eq!(MeshMessage::find(&parts), Some(Ok(result)));
    assert_eq!(MeshMessage::find(&parts[..2]), None);
}
