//! Statistics that an agent's processes report: `$SRV.STATS`, which `nats micro stats` also reads.

use sinew_documents::agent::{AgentProcess, Percentiles, WorkFigures};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use sinew_mesh::Mesh;
use sinew_protocol::Token;
use sinew_protocol::code;
use tokio::time::timeout;

use crate::failure::{Failure, FailureKind};

/// Time limit for the first response.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// Time without responses after which no more are expected.
const SILENCE: Duration = Duration::from_millis(120);
/// Maximum number of reported processes.
const MAX_PROCESSES: usize = 64;
/// Maximum size of a response.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Maximum length of a text from a process.
const MAX_TEXT_CHARS: usize = 200;

fn work_figures(figures: &Value) -> Option<WorkFigures> {
    let count = figures.get("num_requests")?.as_u64()?;
    let number = |key: &str| figures.get(key).and_then(Value::as_u64).unwrap_or_default();
    Some(WorkFigures {
        count,
        errors: number("num_errors"),
        average_ms: number("average_processing_time") as f64 / 1e6,
        last_error: text_of(figures, "last_error"),
    })
}

/// Parses a response, or returns `None` if it is not from a service.
fn agent_process(answer: &Value) -> Option<AgentProcess> {
    let endpoint = answer.get("endpoints")?.as_array()?.first()?;
    let data = endpoint.get("data").unwrap_or(&Value::Null);
    let times =
        |name: &str| serde_json::from_value::<Option<Percentiles>>(data.get(name)?.clone()).ok().flatten();
    Some(AgentProcess {
        id: text_of(answer, "id"),
        version: text_of(answer, "version"),
        started: text_of(answer, "started"),
        calls: work_figures(endpoint)?,
        tasks: tasks_of(data),
        draining: data.get("draining").and_then(Value::as_bool).unwrap_or_default(),
        working: data.get("working").and_then(Value::as_u64).unwrap_or_default(),
        work_ms: times("work_ms"),
        queue_ms: times("queue_ms"),
    })
}

/// Returns the statistics of tasks, wherever an agent stores them in its own data.
fn tasks_of(data: &Value) -> Option<WorkFigures> {
    let members = data.as_object().into_iter().flat_map(|members| members.values());
    work_figures(data).or_else(|| members.into_iter().find_map(work_figures))
}

fn text_of(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().chars().take(MAX_TEXT_CHARS).collect()
}

/// Requests the statistics of all processes of an agent. Returns none if the agent is offline.
///
/// # Errors
/// Fails if the connection is closed, or permissions are missing.
pub async fn ask_processes(mesh: &Mesh, agent: &str) -> Result<Vec<AgentProcess>, Failure> {
    let denied = mesh.admin().denied();
    tokio::select! { biased;
        asked = gather(mesh, agent) => asked,
        denied = denied => Err(denied.into()),
    }
}

/// Returns whether this user may request the statistics of an agent's processes.
pub async fn may_ask_processes(mesh: &Mesh, agent: &str) -> bool {
    let rights = mesh.admin().rights().await;
    rights.is_ok_and(|rights| rights.is_none_or(|granted| granted.may_publish(&statistics_subject(agent))))
}

fn statistics_subject(agent: &str) -> String {
    format!("$SRV.STATS.{}", Token::of(agent))
}

async fn gather(mesh: &Mesh, agent: &str) -> Result<Vec<AgentProcess>, Failure> {
    let unsent = |error: &dyn std::fmt::Display| {
        let text = format!("cannot query the processes of an agent: {error}");
        Failure::new(FailureKind::Failed, code::NATS_SERVER_REFUSED.as_str(), text)
    };
    let client = mesh.client();
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| unsent(&error))?;
    client
        .publish_with_reply(statistics_subject(agent), inbox, "".into())
        .await
        .map_err(|error| unsent(&error))?;
    let mut found = Vec::new();
    let mut patience = FIRST_ANSWER;
    while found.len() < MAX_PROCESSES {
        let Ok(Some(answer)) = timeout(patience, answers.next()).await else {
            // A server that does not respond has not forwarded the request.
            mesh.admin().rights().await?;
            break;
        };
        // A status instead of a response reports that there are no responders.
        if answer.status.is_some() {
            break;
        }
        if answer.payload.len() > MAX_ANSWER_BYTES {
            continue;
        }
        let read = serde_json::from_slice::<Value>(&answer.payload).ok();
        found.extend(read.as_ref().and_then(agent_process));
        patience = SILENCE;
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_of_services_are_read_and_others_passed_over() {
        let figures = json!({"num_requests": 4, "num_errors": 1, "average_processing_time": 2_500_000, "last_error": "SINEW-5020"});
        let wanted =
            WorkFigures { count: 4, errors: 1, average_ms: 2.5, last_error: "SINEW-5020".to_owned() };
        let mut endpoint = figures.clone();
        endpoint["data"] = json!({"tasks": figures});
        let answer = json!({"id": "x", "version": "1.0.0", "started": "2026-01-01T00:00:00Z", "endpoints": [endpoint]});
        let process = agent_process(&answer).unwrap();
        assert_eq!((&process.calls, &process.tasks), (&wanted, &Some(wanted.clone())));
        for other in [json!(null), json!({"endpoints": []}), json!({"endpoints": [{"num_requests": "many"}]})]
        {
            assert_eq!(agent_process(&other), None, "{other}");
        }
    }
}
