//! Questions of a mesh agent to people, answered by the person in the chat.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use sinew_agents::{People as _, PersonPrompt};
use sinew_documents::approval::OpenApproval;
use sinew_operations::approval_filter::ApprovalFilter;
use sinew_operations::approvals::DecisionRequest;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::card::PERSON_QUESTION;
use tokio::sync::mpsc::UnboundedReceiver;

use super::terminal::AskedPeople;

/// Number of reads for a question that an agent has announced, and the pause between two of them.
const LOOKS: (u32, Duration) = (40, Duration::from_millis(250));

/// Answers questions of the session while the agent reports that it waits. A question that another person
/// answers first is closed by that answer.
pub(super) async fn answer_questions(
    operator: &MeshOperator,
    people: &AskedPeople,
    session: &str,
    mut waits: UnboundedReceiver<()>,
) -> Result<(), Failure> {
    let mut put = BTreeSet::new();
    while waits.recv().await.is_some() {
        for _ in 0..LOOKS.0 {
            let open = operator.approvals(&ApprovalFilter::of_workflow(PERSON_QUESTION)).await?;
            let is_meant = |one: &&OpenApproval| asked_in(one, session) && !put.contains(&one.execution);
            if let Some(found) = open.iter().find(is_meant) {
                put.insert(found.execution.clone());
                answer_question(operator, people, found).await?;
                break;
            }
            tokio::time::sleep(LOOKS.1).await;
        }
    }
    Ok(())
}

fn asked_in(approval: &OpenApproval, session: &str) -> bool {
    let data = approval.wait.question.as_ref().map(|question| &question.data);
    data.and_then(|data| data.pointer("/asked_by/session")).is_some_and(|asked| asked == session)
}

async fn answer_question(
    operator: &MeshOperator,
    people: &AskedPeople,
    approval: &OpenApproval,
) -> Result<(), Failure> {
    let Some(question) = &approval.wait.question else { return Ok(()) };
    let is_about_call = question.data.get("tool").is_some();
    let prompt = PersonPrompt {
        text: question.prompt.clone(),
        call: if is_about_call { question.data.clone() } else { Value::Null },
        people: question.allowed.clone(),
        timeout: Duration::MAX,
        key: approval.execution.clone(),
    };
    // The terminal always answers.
    let Ok(reply) = people.ask(prompt).await else { return Ok(()) };
    let words = reply.comment.clone().filter(|_| !is_about_call && reply.approved);
    let decision = DecisionRequest {
        id: None,
        data: words.map_or(Value::Null, Value::String),
        // A rejection needs a reason.
        comment: reply.comment.or_else(|| (!reply.approved).then(|| "no answer at the terminal".to_owned())),
        reject: !reply.approved,
    };
    let id = sinew_protocol::ExecutionId::parse(&approval.execution);
    let Ok(id) = id else { return Ok(()) };
    // A question that was answered elsewhere in the meantime no longer exists.
    if let Ok(found) = operator.find_approval(&id, None).await {
        operator.decide(found.asking_node(), decision).await?;
    }
    Ok(())
}
