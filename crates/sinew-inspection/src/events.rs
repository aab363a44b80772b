//! `execution events`: one line per event, in the vocabulary of the mesh, the dialect or the
//! engine.

use std::cell::Cell;

use serde_json::Value;
use sinew_documents::event::EventLine;
use sinew_documents::words;
use sinew_engine::{ActivationId, ExecutionState, NativeEvent};
use sinew_execution::{NativeEvents, events};
use sinew_protocol::Vocabulary;

use crate::record::Record;

/// Vocabulary of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventWords {
    /// Messages of the mesh protocol.
    Mesh(Vocabulary),
    /// The dialect's own events.
    Native,
    /// The engine's facts.
    Facts,
}

/// One event of a record, with its text for people.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// The event as a document.
    pub line: EventLine,
    place: (usize, usize),
    text: String,
}

/// Returns all events of a record. Events never change, so a follower can continue after the last one.
pub fn lines(record: &Record, whose: EventWords) -> Vec<RecordedEvent> {
    lines_beside(record, whose, &NativeEvents::default())
}

/// Returns the events of a record without those that `live` has projected from progress.
pub fn lines_beside(record: &Record, whose: EventWords, live: &NativeEvents) -> Vec<RecordedEvent> {
    let (mut all, mut unseen) = (NativeEvents::default(), live.clone());
    let program = record.execution.program();
    let mut state = ExecutionState::new();
    let mut found = Vec::new();
    for (n, round) in record.execution.journal().iter().enumerate() {
        let index = Cell::new(0);
        for fact in &round.facts {
            sinew_engine::apply(&program.graph, &mut state, round.at, fact);
            let ctx = sinew_engine::AdapterContext::new(&program.graph, &state, round.at)
                .with_execution_id(record.execution.id().as_str());
            let mut push = |kind: String, node: Option<String>, event: Value, text: String| {
                let place = (n + 1, index.get() + 1);
                index.set(place.1);
                let seq = format!("{}.{}", place.0, place.1);
                let line = EventLine { seq, at: round.at.into(), kind, node, event };
                found.push(RecordedEvent { line, place, text });
            };
            match whose {
                EventWords::Mesh(words) => {
                    for message in events::project(&ctx, record.execution.id(), fact) {
                        let event = message.to_json(words);
                        let word = |key: &str| event[key].as_str().map(str::to_owned);
                        let status = event["status"].as_str().map(|status| people_word(status).to_owned());
                        let text = status.into_iter().chain(word("error_message")).collect::<Vec<_>>();
                        push(
                            word("type").unwrap_or_default(),
                            word("node_id"),
                            event.clone(),
                            text.join(" "),
                        );
                    }
                }
                EventWords::Native => {
                    let mut shown = unseen.of_fact(program.adapter, &ctx, fact).into_iter().peekable();
                    for event in all.of_fact(program.adapter, &ctx, fact) {
                        match shown.next_if_eq(&event) {
                            Some(event) => push(kind_of(&event), node_of(&event), event.json, event.line),
                            // Events keep their positions, whichever of them a follower has seen.
                            None => index.set(index.get() + 1),
                        }
                    }
                }
                EventWords::Facts => {
                    let event = serde_json::to_value(fact).unwrap_or_default();
                    let act = event["act"].as_u64().and_then(|act| u32::try_from(act).ok());
                    let node = act
                        .filter(|act| (*act as usize) < state.acts.len())
                        .map(|act| events::label(&ctx, act));
                    let mut rest = event.clone();
                    rest.as_object_mut().map(|fact| fact.shift_remove("fact"));
                    push(
                        event["fact"].as_str().unwrap_or_default().to_owned(),
                        node,
                        event,
                        rest.to_string(),
                    );
                }
            }
        }
    }
    found
}

/// Projects progress that is not stored yet to events of the dialect. Their index is 0.
pub fn live_lines(
    record: &Record,
    live: &mut NativeEvents,
    attempt: (ActivationId, u32),
    value: Value,
) -> Vec<RecordedEvent> {
    let (ctx, adapter) = (record.execution.ctx(), record.execution.program().adapter);
    let place = (record.execution.journal().len(), 0);
    let events = live.of_progress(adapter, &ctx, attempt, value).into_iter().map(|event| {
        let (kind, node, seq) = (kind_of(&event), node_of(&event), format!("{}.{}", place.0, place.1));
        let line = EventLine { seq, at: ctx.now.into(), kind, node, event: event.json };
        RecordedEvent { line, place, text: event.line }
    });
    events.collect()
}

/// Returns the type of an event of a dialect.
fn kind_of(event: &NativeEvent) -> String {
    let kind = ["type", "event", "kind", "event_type"].iter().find_map(|key| event.json[*key].as_str());
    kind.unwrap_or("event").to_owned()
}

/// Returns the node of an event of a dialect.
fn node_of(event: &NativeEvent) -> Option<String> {
    let node = ["node_id", "node", "nodeId"].iter().find_map(|key| event.json[*key].as_str());
    node.map(str::to_owned)
}

/// Maps a status on the wire, in either vocabulary, to that of views.
fn people_word(status: &str) -> &str {
    match status {
        "success" => "succeeded",
        "error" | "failure" => "failed",
        other => other,
    }
}

impl RecordedEvent {
    /// Round and index as numbers.
    pub const fn place(&self) -> (usize, usize) {
        self.place
    }

    /// Returns false for an event that was received before it was stored.
    pub const fn is_stored(&self) -> bool {
        self.place.1 > 0
    }

    /// Returns true if it concerns this node or one of its children.
    pub fn is_about(&self, wanted: &str) -> bool {
        self.line.node.as_deref().is_some_and(|node| is_about(node, wanted))
    }

    /// Formats the event as a line for people.
    pub fn show(&self) -> String {
        let at = self.line.at.to_string();
        let node = words::name(self.line.node.as_deref().unwrap_or("-"));
        format!(
            "{:<7} {at:<24}  {:<32}  {node:<24}  {}",
            self.line.seq,
            words::name(&self.line.kind),
            words::one_line(&self.text, 200)
        )
        .trim_end()
        .to_owned()
    }
}

/// Returns true if a node, with its index in maps and loops, is this node or one of its children.
pub fn is_about(node: &str, wanted: &str) -> bool {
    let Some(rest) = node.strip_prefix(wanted) else { return false };
    let place = rest.strip_prefix("_iter").unwrap_or(rest);
    rest.is_empty() || (place.starts_with('_') && place[1..].chars().all(|c| c.is_ascii_digit() || c == '_'))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use sinew_engine::{ExecutionMode, TaskReply, Time};
    use sinew_execution::Call;
    use sinew_runtime::sim::{Sim, Stub, Stubbed};

    use super::*;

    const SWENY: &str = "id: w\nname: w\nentry: n\nnodes: {n: {name: N, instruction: Add.}}\nedges: []\n";
    const COVALT: &str = r#"{"nodes": [{"id": "cs", "type": "chat-start", "data": {}},
        {"id": "n", "type": "agent", "data": {"agent": "agent"}}],
        "edges": [{"id": "e", "source": "cs", "target": "n", "data": {"channel": "flow"}}]}"#;
    const TEAM: &str = r#"{"nodes": [{"id": "n", "type": "AI_AGENT", "subtype": "OPENAI_CHATGPT",
        "configurations": {"agent": "agent"}}], "connections": []}"#;

    /// An agent that reports its calls with its reply, and while it works if its progress is stored.
    struct Reporter {
        events: Vec<Value>,
        is_in_process: bool,
    }

    impl Stub for Reporter {
        fn call(&mut self, _: Time, _: &Call) -> Stubbed {
            let progress = self.events.iter().filter(|_| self.is_in_process);
            let progress = progress.map(|event| (1, event.clone())).collect();
            let reply = TaskReply { events: self.events.clone(), ..TaskReply::new(json!({"text": "3"})) };
            Stubbed::Answer { after: 1_000, result: Ok(reply), progress }
        }
    }

    fn record(file: &str, text: &str, events: &[Value], is_in_process: bool, until: Time) -> Record {
        let (library, program) = crate::tests::loaded(file, text);
        let mut sim = Sim::new(Arc::new(library), Reporter { events: events.to_vec(), is_in_process });
        sim.run(program, json!({"message": "hi"}), ExecutionMode::default(), until);
        Record::local(sim.execution())
    }

    /// Types of the events about calls, with their tools.
    fn calls(events: &[RecordedEvent]) -> Vec<String> {
        let texts = events.iter().map(|event| event.line.event.to_string());
        let of = |text: String| {
            let tool = ["add", "bad"].into_iter().find(|tool| text.contains(&format!("\"{tool}\"")))?;
            let kinds = ["tool:call", "tool:result", "tool:error", "Started", "Completed", "Error"];
            let kind = kinds.into_iter().find(|kind| text.contains(&format!("{kind}\"")))?;
            (!text.contains("toolCalls") && !text.contains("function_calls"))
                .then(|| format!("{kind} {tool}"))
        };
        texts.filter_map(of).collect()
    }

    #[test]
    fn a_call_is_reported_once_however_its_report_arrives() {
        let event = |kind: &str, tool: &str| json!({"type": kind, "tool": tool, "input": 1, "output": 2});
        let events =
            [("tool:call", "add"), ("tool:result", "add"), ("tool:call", "bad"), ("tool:error", "bad")];
        let events = events.map(|(kind, tool)| event(kind, tool));
        for (file, text, stored, told) in [
            ("w.yaml", SWENY, true, vec!["tool:call add", "tool:result add", "tool:call bad"]),
            ("g.json", COVALT, true, vec!["Started add", "Completed add", "Started bad", "Error bad"]),
            (
                "t.json",
                TEAM,
                // Chunks are for observers; the output contains the calls.
                false,
                vec!["tool:call add", "tool:result add", "tool:call bad", "tool:error bad"],
            ),
        ] {
            let ended = record(file, text, &events, false, 10_000);
            assert!(ended.execution.state().ended);
            let all = lines(&ended, EventWords::Native);
            assert_eq!(calls(&all), if stored { told.clone() } else { Vec::new() }, "{file}");
            let in_process = record(file, text, &events, true, 10_000);
            assert_eq!(calls(&lines(&in_process, EventWords::Native)), told, "{file}");

            let running = record(file, text, &events, false, 500);
            let act = running.execution.state().acts.iter().position(|act| act.running == Some(1)).unwrap();
            let attempt = (u32::try_from(act).unwrap(), 1);
            let mut live = NativeEvents::default();
            let project = |record: &Record, live: &mut NativeEvents| -> Vec<RecordedEvent> {
                events.iter().flat_map(|event| live_lines(record, live, attempt, event.clone())).collect()
            };
            let mut followed = project(&running, &mut live);
            assert!(followed.iter().all(|event| !event.is_stored()), "{file}");
            let rest = lines_beside(&ended, EventWords::Native, &live);
            assert!(rest.iter().all(|event| event.is_stored() && all.contains(event)), "{file}");
            followed.extend(rest);
            assert_eq!(calls(&followed), told, "{file}");
            assert_eq!(project(&ended, &mut live), [], "{file}: the attempt is not running");
        }
    }
}
