//! Several callers use one id: each gets an answer, and nobody gets another one's execution.

use serde_json::json;
use sinew_agent::Delivery;
use sinew_executor::client::{Client, ClientError};
use sinew_protocol::command::{Command, PauseCommand, ResumeCommand, StartCommand};
use sinew_protocol::{ExecutionId, Token};

use crate::faults::audit::{single, succeeded};
use crate::faults::signals::ask;
use crate::support::mesh::{PATIENCE, TestMesh, start};

/// Returns the answer that the starter of an execution gets.
async fn learns(client: &Client, execution: &ExecutionId) -> Result<String, ClientError> {
    let outcome = client.own_outcome(execution, "single", Some(PATIENCE)).await?;
    Ok(outcome.unwrap().output.unwrap()["value"].as_str().unwrap().to_owned())
}

fn chosen(id: &str, value: &str) -> StartCommand {
    StartCommand::new(ExecutionId::parse(id).unwrap(), "single", json!({ "value": value }))
}

#[tokio::test]
async fn a_known_id_is_refused_to_others_while_it_is_open_and_after() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let mut agents =
        mesh.agents_process(Delivery::Queue, &[("one", json!({ "pass": true, "hold": 1 }))]).await;
    let service = mesh.executor("one").await;
    let (ada, eve, mallory) =
        (mesh.client_of("ada").await, mesh.client_of("eve").await, mesh.client_of("mallory").await);
    let id = ExecutionId::parse("order-17").unwrap();
    assert!(ada.start(chosen("order-17", "ada's")).await.unwrap());
    agents.asked(1).await;
    // Open: the book knows it.
    let other = eve.start(chosen("order-17", "eve's")).await.unwrap_err();
    assert!(matches!(other, ClientError::OtherStart(_)), "{other}");
    let other = learns(&eve, &id).await.unwrap_err();
    assert!(matches!(other, ClientError::OtherStart(_)), "{other}");
    let verdict = async {
        loop {
            let record = ada.record(&id).await.unwrap().unwrap();
            if let Some(verdict) = record.commands.into_iter().find(|one| one.caller == Token::of("eve")) {
                return verdict;
            }
        }
    };
    let verdict = tokio::time::timeout(PATIENCE, verdict).await.expect("a start was dropped in silence");
    assert!(!verdict.accepted && verdict.reason.contains("SINEW-6041"), "{verdict:?}");
    // Commands of two callers under one id are two commands.
    let pause = Command::Pause(PauseCommand { execution: id.clone(), reason: String::new() });
    assert!(ask(&eve, "same", pause).await.accepted);
    assert!(ask(&ada, "same", Command::Resume(ResumeCommand { execution: id.clone() })).await.accepted);
    agents.release().await;
    assert_eq!(learns(&ada, &id).await.unwrap(), "ada's");
    // Closed: the history knows it.
    let before = ada.record(&id).await.unwrap().unwrap();
    let other = mallory.start(chosen("order-17", "mallory's")).await.unwrap_err();
    assert!(matches!(other, ClientError::OtherStart(_)), "{other}");
    let seen = mallory.outcome(&id, Some(PATIENCE)).await.unwrap().unwrap();
    assert_eq!(seen.output.unwrap()["value"], "ada's", "a closed execution was replaced");
    let other = learns(&mallory, &id).await.unwrap_err();
    assert!(matches!(other, ClientError::OtherStart(_)), "{other}");
    // A start behind mallory's start is decided after it.
    let next = start(&ada, "next", "single", json!({ "value": "next" }));
    let next_id = next.execution.clone();
    ada.start(next).await.unwrap();
    assert_eq!(learns(&ada, &next_id).await.unwrap(), "next");
    assert_eq!(mesh.mesh.history().get(&id).await.unwrap().unwrap().0.caller, "ada");
    assert_eq!(ada.record(&id).await.unwrap().unwrap().rounds, before.rounds);
    service.drain().await;
    agents.end().await;
}

#[tokio::test]
async fn the_id_of_another_callers_key_cannot_be_taken() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", json!({ "pass": true }))]).await;
    let service = mesh.executor("one").await;
    let (ada, eve) = (mesh.client_of("ada").await, mesh.client_of("eve").await);
    let lies = [("first", None), ("second", Some("second"))];
    for (key, said) in lies {
        let mut taken = chosen(ada.execution_id(key).as_str(), "eve's");
        taken.idempotency_key = said.map(str::to_owned);
        // An owner that is asked refuses at once; of a stored start the verdict tells.
        let refused = match eve.start(taken).await {
            Ok(_) => learns(&eve, &ada.execution_id(key)).await.unwrap_err(),
            Err(refused) => refused,
        };
        assert!(refused.to_string().contains("SINEW-6063"), "{refused}");
    }
    for (key, _) in lies {
        let command = ada.start_command(key, "single", json!({ "value": "ada's" }));
        let execution = command.execution.clone();
        assert!(ada.start(command).await.unwrap());
        assert_eq!(learns(&ada, &execution).await.unwrap(), "ada's");
        assert_eq!(succeeded(&ada, &execution).await, json!({ "value": "ada's" }));
        let other = learns(&eve, &execution).await.unwrap_err();
        assert!(matches!(other, ClientError::OtherStart(_)), "{other}");
    }
    service.drain().await;
    agents.end().await;
}
