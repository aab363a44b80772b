//! Messages of peers, clients and services outside, as they are read before anything is done with them.

use bytes::Bytes;
use serde_json::Value;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::access::AccessKey;
use sinew_protocol::command::Command;
use sinew_protocol::deployment::Deployment;
use sinew_protocol::journal::{Commit, ExecutionRecord};
use sinew_protocol::jsonrpc::{Request, Response};
use sinew_protocol::message::Vocabulary;
use sinew_protocol::query::{Answer, Query};
use sinew_protocol::start::StartAnswer;
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{WorkflowNodeRequest, read_node_answer, read_result_bytes};
use sinew_protocol::tool::WorkflowTool;
use sinew_protocol::webhook::WebhookTrigger;
use sinew_protocol::{MeshMessage, Subject, TaskId, Token, card};

/// A message of the mesh, as JSON and as protobuf: a message that was read is written and read again.
pub(crate) fn wire_message(bytes: &[u8]) {
    if let Ok(message) = MeshMessage::from_slice(bytes) {
        let again = MeshMessage::from_json(&message.to_json(Vocabulary::Current));
        assert_eq!(again.as_ref().ok(), Some(&message), "JSON reads back the same");
        // The words of the specification know no cancellation: a cancellation is read as another message.
        assert!(
            MeshMessage::from_json(&message.to_json(Vocabulary::Spec)).is_ok(),
            "the words of the specification are read"
        );
        let again = MeshMessage::from_protobuf(message.to_protobuf().into());
        assert_eq!(again.as_ref().ok(), Some(&message), "protobuf reads back the same");
    }
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(message) = MeshMessage::from_protobuf(bytes.clone()) {
        let again = MeshMessage::from_protobuf(message.to_protobuf().into());
        assert_eq!(again.as_ref().ok(), Some(&message), "protobuf reads back the same");
    }
    if let Ok(commit) = Commit::decode(&bytes) {
        assert_eq!(
            Commit::decode(&commit.encode()).as_ref().ok(),
            Some(&commit),
            "a commit reads back the same"
        );
    }
    if let Ok(record) = ExecutionRecord::decode(&bytes) {
        let again = ExecutionRecord::decode(&record.encode());
        assert_eq!(again.as_ref().ok(), Some(&record), "a record reads back the same");
    }
}

/// Requests, commands, answers and records of a mesh, as each of their readers reads them.
pub(crate) fn request(bytes: &[u8]) {
    let id = Token::of("an-id");
    for operation in Operation::ALL {
        if let Ok(command) = Command::read(operation, &id, bytes) {
            let again = Command::read(operation, &id, command.to_json().as_bytes());
            assert_eq!(again.ok(), Some(command), "a command reads back the same");
        }
    }
    if let Ok(query) = Query::read(bytes) {
        assert_eq!(
            Query::read(query.to_json().as_bytes()).ok(),
            Some(query),
            "a question reads back the same"
        );
    }
    let _ = Answer::read(bytes);
    let _ = StartAnswer::read(bytes);
    let _ = Deployment::read(bytes);
    let _ = WorkflowNodeRequest::read(bytes);
    let _ = read_result_bytes(bytes);
    let _ = WebhookTrigger::read(&id, bytes);
    let _ = AccessKey::read(&id, bytes);
    if let Ok(task) = TaskId::parse("a-task") {
        let _ = read_node_answer(bytes, &task);
    }
    match Request::read(bytes) {
        Ok(call) => drop(call.params::<Value>()),
        // The answer of a refusal can be read, too.
        Err(refused) => {
            let answer = Response::error(refused.id, &refused.error);
            let text = serde_json::to_vec(&answer).expect("an answer is JSON");
            Response::read(&text).expect("a refusal is an answer");
        }
    }
    if let Ok(answer) = Response::read(bytes) {
        let _ = answer.into_result();
    }
    if let Some(subject) = std::str::from_utf8(bytes).ok().and_then(|text| Subject::parse("mesh", text)) {
        let name = subject.name("mesh");
        assert_eq!(Subject::parse("mesh", &name), Some(subject), "{name} is not read as it was written");
    }
}

/// The card of an agent, with its extensions, and the tool that it makes.
pub(crate) fn agent_card(bytes: &[u8]) {
    let Ok(card) = sinew_protocol::unique_keys::read_unique::<AgentCard>(bytes) else { return };
    let _ = (
        WorkflowTool::from_card(&card),
        card::kind(&card),
        card::delivery(&card),
        card::visualisation(&card),
    );
    let text = serde_json::to_vec(&card).expect("a card is JSON");
    let again: AgentCard = serde_json::from_slice(&text).expect("a card that was written is read");
    assert_eq!(
        serde_json::to_value(&again).ok(),
        serde_json::to_value(&card).ok(),
        "a card reads back the same"
    );
}
