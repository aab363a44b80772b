//! Compares the agent's log with the records of provider, tools and callers.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use serde_json::Value;
use sinew_executor::client::Client;
use sinew_mesh::history::HistoryFilter;
use sinew_protocol::Subject;
use sinew_protocol::card::agent_call;
use sinew_protocol::stream::{STEPS, bucket};
use tokio::time::{Instant, sleep};

use super::ledger::RequestLedger;
use super::script::{ACT, LOOK, TURN_CALLS, WorkId, calls_of, right_answer};
use super::talks::TalkEnd;
use crate::Fallible;

/// Number of records to read concurrently.
const AT_ONCE: usize = 16;
/// Time limit for abandoned calls to end.
const CALLS_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum problems of a kind to list.
const SHOWN: usize = 20;

/// Findings of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ConversationVerdict {
    pub(crate) conversations: usize,
    /// Conversations that ended with the right answer.
    pub(crate) ended_right: usize,
    /// Turns in the logs.
    pub(crate) turns: usize,
    /// Takeovers of conversations.
    pub(crate) taken_up: usize,
    /// Model calls in the logs.
    pub(crate) recorded_asks: u32,
    /// Model calls that the provider received.
    pub(crate) model_calls: u32,
    /// Model calls beyond one per turn, repeated because the answer was lost in a crash.
    pub(crate) repeated_asks: u32,
    /// Model calls for a turn whose answer was in the log.
    pub(crate) recorded_turns_asked_again: u32,
    /// Calls of `Act` that were reported to the model as unknown.
    pub(crate) unknown_calls: u32,
    /// Number of times that `Act` ran.
    pub(crate) acted: u32,
    /// Calls of `Act` that ran more than once.
    pub(crate) acted_twice: usize,
    /// Number of times that `Look` ran, and of its calls.
    pub(crate) looked: u32,
    pub(crate) look_calls: usize,
    /// Executions of tool calls.
    pub(crate) call_executions: usize,
    /// Violations.
    pub(crate) wrong: Vec<String>,
}

/// Log of a conversation: records in order, each with its kind.
type ConversationRecords = Vec<(String, Value)>;

/// Reads all logs, by activation.
async fn read_logs(client: &Client) -> Fallible<BTreeMap<String, ConversationRecords>> {
    let mesh = client.mesh();
    let name = bucket(mesh.namespace(), STEPS);
    let mut steps = mesh.admin().jetstream().get_stream(&name).await?;
    let state = steps.info().await?.state.clone();
    let read = |seq: u64| {
        let steps = &steps;
        async move { Fallible::Ok(steps.get_raw_message(seq).await?) }
    };
    let messages: Vec<_> = stream::iter(state.first_sequence.max(1)..=state.last_sequence)
        .map(read)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let mut logs: BTreeMap<String, BTreeMap<u64, (String, Value)>> = BTreeMap::new();
    for message in messages {
        let Some(Subject::Step { activation, place, .. }) =
            Subject::parse(mesh.namespace(), &message.subject)
        else {
            return Err(format!("{} is not the subject of a step", message.subject).into());
        };
        let record: Value = serde_json::from_slice(&message.payload)?;
        let kind = record["kind"].as_str().unwrap_or_default().to_owned();
        logs.entry(activation.to_string()).or_default().insert(place, (kind, record));
    }
    Ok(logs.into_iter().map(|(activation, records)| (activation, records.into_values().collect())).collect())
}

/// Waits until no execution is open, because calls of crashed processes may continue.
async fn wait_for_calls(client: &Client) -> Fallible<bool> {
    let until = Instant::now() + CALLS_TIMEOUT;
    while !client.open().await?.is_empty() {
        if Instant::now() >= until {
            return Ok(false);
        }
        sleep(Duration::from_millis(250)).await;
    }
    Ok(true)
}

/// Reads all sources and returns the verdict.
pub(crate) async fn judge_conversations(
    client: &Client,
    ledger: &RequestLedger,
    ends: &[(u32, TalkEnd)],
) -> Fallible<ConversationVerdict> {
    let mut verdict = ConversationVerdict { conversations: ends.len(), ..Default::default() };
    for (number, end) in ends {
        match end {
            Ok(text) if *text == right_answer(*number) => verdict.ended_right += 1,
            Ok(text) => verdict.wrong.push(format!("c{number} ended with '{text:.100}'")),
            Err(reason) => verdict.wrong.push(format!("c{number}: {reason:.300}")),
        }
    }
    if !wait_for_calls(client).await? {
        verdict.wrong.push("an execution is still open".to_owned());
    }
    let logs = read_logs(client).await?;
    if logs.len() != ends.len() {
        verdict.wrong.push(format!("{} logs of {} conversations", logs.len(), ends.len()));
    }
    for (activation, records) in &logs {
        judge_log(&mut verdict, ledger, activation, records);
    }
    judge_ledger(&mut verdict, ledger);
    for tool in [LOOK, ACT] {
        let filter = HistoryFilter { workflow: Some(agent_call(tool)), ..HistoryFilter::default() };
        let executions = client.mesh().history().list(&filter, usize::MAX / 4).await?.len();
        verdict.call_executions += executions;
        let calls = calls_of(tool) * ends.len();
        // A call of `Act` can be lost before it starts; it is then reported as unknown.
        let least = if tool == ACT { calls - verdict.unknown_calls as usize } else { calls };
        if executions > calls || executions < least {
            verdict.wrong.push(format!("{executions} executions for {calls} calls of {tool}"));
        }
    }
    if verdict.wrong.len() > SHOWN {
        let more = verdict.wrong.len() - SHOWN;
        verdict.wrong.truncate(SHOWN);
        verdict.wrong.push(format!("and {more} more"));
    }
    Ok(verdict)
}

/// Checks the order of a log, and compares its results with the ledger.
fn judge_log(
    verdict: &mut ConversationVerdict,
    ledger: &RequestLedger,
    activation: &str,
    records: &[(String, Value)],
) {
    let mut wrong = |what: String| verdict.wrong.push(format!("{activation}: {what}"));
    let end = records.last().filter(|(kind, _)| kind == "end");
    let text = end.and_then(|(_, record)| record.pointer("/output/text").and_then(Value::as_str));
    let conversation = text.and_then(|text| text.strip_prefix('c')?.split(' ').next()?.parse::<u32>().ok());
    let Some(conversation) = conversation else {
        return wrong("the log does not end with an output".to_owned());
    };
    let (mut next_turn, mut begins) = (0, 0_usize);
    let mut done = BTreeMap::<(u64, u64), String>::new();
    for (kind, record) in records {
        let turn = record["turn"].as_u64().unwrap_or_default();
        match kind.as_str() {
            "begin" => begins += 1,
            "ask" => {
                verdict.recorded_asks += 1;
                verdict.recorded_turns_asked_again += u32::from(turn < next_turn);
            }
            "turn" if turn == next_turn => next_turn += 1,
            "turn" => wrong(format!("turn {turn} comes when {next_turn} is expected")),
            "done" => {
                let place = (turn, record["index"].as_u64().unwrap_or_default());
                let status = record.pointer("/result/status").and_then(Value::as_str).unwrap_or_default();
                if done.insert(place, status.to_owned()).is_some() {
                    wrong(format!("call {place:?} has two results"));
                }
            }
            _ => {}
        }
    }
    verdict.turns += usize::try_from(next_turn).unwrap_or_default();
    verdict.taken_up += begins.saturating_sub(1);
    if next_turn != TURN_CALLS.len() as u64 + 1 {
        wrong(format!("{next_turn} turns"));
    }
    for (turn, calls) in TURN_CALLS.iter().enumerate() {
        for (index, tool) in calls.iter().enumerate() {
            let status = done.get(&(turn as u64, index as u64)).map(String::as_str);
            let id = WorkId { conversation, turn, index };
            let work = ledger.state().done.get(&(*tool, id)).copied().unwrap_or_default();
            match status {
                Some("succeeded") if work > 0 => {}
                Some("unknown") if *tool == ACT => verdict.unknown_calls += 1,
                status => {
                    wrong(format!("{tool} {} has the status {status:?}, and worked {work} times", id.text()));
                }
            }
        }
    }
}

/// Counts requests of provider and tools.
fn judge_ledger(verdict: &mut ConversationVerdict, ledger: &RequestLedger) {
    let state = ledger.state();
    verdict.wrong.extend(state.problems.iter().cloned());
    verdict.model_calls = state.asked.values().map(|requests| requests.count).sum();
    verdict.repeated_asks = state.asked.values().map(|requests| requests.count - 1).sum();
    for ((tool, id), times) in &state.done {
        if *tool == ACT {
            verdict.acted += times;
            if *times > 1 {
                verdict.acted_twice += 1;
                verdict.wrong.push(format!("{tool} {} worked {times} times", id.text()));
            }
        } else {
            verdict.looked += times;
            verdict.look_calls += 1;
        }
    }
    let ConversationVerdict { recorded_asks, model_calls, repeated_asks, taken_up, .. } = *verdict;
    if model_calls > recorded_asks {
        verdict.wrong.push(format!("{model_calls} model calls, of which {recorded_asks} were announced"));
    }
    if repeated_asks as usize > taken_up {
        verdict.wrong.push(format!("{repeated_asks} model calls were repeated after {taken_up} takeovers"));
    }
    if verdict.recorded_turns_asked_again > 0 {
        let again = verdict.recorded_turns_asked_again;
        verdict.wrong.push(format!("{again} recorded turns were asked again"));
    }
}
