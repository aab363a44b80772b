//! Function calls as data: requested by a workflow, performed by a shell, answered by a fact.

use std::{
    io,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
    vec,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::{ScriptError, ScriptErrorKind},
    fair_queue::WaitingRequest,
    function::Function,
    limits::Limits,
    printed_text::PrintedText,
    request::EvaluationRequest,
    worker_pool,
};

/// Maximum time of all calls of a batch, excluding waits for a worker.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum total size of the results of a batch, in bytes of JSON.
const MAX_RESULT_BYTES: usize = 16 << 20;

/// Functions to call, each with one of the values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallBatch {
    /// Arguments for the functions.
    pub values: Vec<Value>,
    /// Calls, in the order of their outcomes.
    pub calls: Vec<FunctionCall>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Source of the function.
    pub source: String,
    /// Index of the argument in the values.
    pub value: usize,
    /// Fields of the argument that contain the value, each a path of names separated by dots; the
    /// empty path adds the fields of the value itself. If empty, the value is the argument.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

/// Result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// Result of the function.
    Value(Value),
    /// Error of the call.
    Error(ScriptError),
}

impl FunctionCall {
    /// Returns the argument of the call, created from one of the values of its batch.
    pub fn argument(&self, values: &[Value]) -> Result<Value, ScriptError> {
        let Some(value) = values.get(self.value) else {
            return Err(ScriptError::new(ScriptErrorKind::Value, "the value of a call is missing"));
        };
        if self.members.is_empty() {
            return Ok(value.clone());
        }
        let mut argument = Map::new();
        for member in &self.members {
            match member.split_once('.') {
                None if member.is_empty() => {
                    argument.extend(
                        value
                            .as_object()
                            .into_iter()
                            .flatten()
                            .map(|(name, own)| (name.clone(), own.clone())),
                    );
                }
                None => drop(argument.insert(member.clone(), value.clone())),
                Some((outer, inner)) => {
                    let outer = argument.entry(outer).or_insert_with(|| Value::Object(Map::new()));
                    if let Some(inside) = outer.as_object_mut() {
                        inside.insert(inner.to_owned(), value.clone());
                    }
                }
            }
        }
        Ok(Value::Object(argument))
    }

    fn request(&self, values: &[Value]) -> Result<EvaluationRequest, ScriptError> {
        let function = Function::unchecked(&self.source, Limits::function())?;
        function.request(self.argument(values)?)
    }
}

impl CallBatch {
    /// Parses a batch from its JSON.
    pub fn read(json: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(json)
    }

    /// Returns the batch as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Performs the calls and waits for them.
    pub fn perform(self) -> Vec<CallOutcome> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(0, move |outcomes| drop(sender.send(outcomes)));
        receiver.recv().unwrap_or_default()
    }

    /// Performs the calls in sequence on threads of the workers and calls `done` there with all
    /// outcomes. Owners take turns after each call.
    pub fn submit(self, owner: u64, done: impl FnOnce(Vec<CallOutcome>) + Send + 'static) {
        self.resume(Vec::new(), owner, &PrintedText::default(), done);
    }

    /// Performs the calls without an outcome, like [`CallBatch::submit`]. `done` receives the
    /// outcomes of all calls; `printed` receives the text that the functions print.
    pub fn resume(
        self,
        outcomes: Vec<CallOutcome>,
        owner: u64,
        printed: &PrintedText,
        done: impl FnOnce(Vec<CallOutcome>) + Send + 'static,
    ) {
        let mut calls = self.calls;
        calls.drain(..outcomes.len().min(calls.len()));
        RunningBatch {
            value_bytes: self.values.iter().map(json_bytes).sum(),
            values: Arc::new(self.values),
            calls: calls.into_iter(),
            result_bytes: outcomes.iter().map(CallOutcome::result_bytes).sum(),
            outcomes,
            owner,
            printed: printed.clone(),
            evaluated: Duration::ZERO,
            done: Box::new(done),
        }
        .advance();
    }
}

impl CallOutcome {
    /// Returns the size of the result in bytes of JSON; 0 for an error, whose strings are short.
    fn result_bytes(&self) -> usize {
        match self {
            Self::Value(value) => json_bytes(value),
            Self::Error(_) => 0,
        }
    }

    /// Returns whether the call was not performed because no worker was available, so that it can
    /// be retried.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Error(error) if error.kind == ScriptErrorKind::Unavailable)
    }

    /// Parses outcomes from the JSON of a reply.
    pub fn read_all(json: &Value) -> Result<Vec<Self>, serde_json::Error> {
        Vec::deserialize(json)
    }
}

/// Returns the size of a value in bytes of JSON without encoding it.
fn json_bytes(value: &Value) -> usize {
    struct ByteCount(usize);

    impl io::Write for ByteCount {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = ByteCount(0);
    // Neither counting nor serialising a value fails.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Batch in progress.
struct RunningBatch {
    values: Arc<Vec<Value>>,
    /// Size of the values in bytes of JSON.
    value_bytes: usize,
    /// Calls without an outcome.
    calls: vec::IntoIter<FunctionCall>,
    outcomes: Vec<CallOutcome>,
    /// Size of the results so far, in bytes of JSON.
    result_bytes: usize,
    owner: u64,
    /// Receives the text that the functions print.
    printed: PrintedText,
    /// Time of the calls so far, excluding waits for a worker.
    evaluated: Duration,
    done: Box<dyn FnOnce(Vec<CallOutcome>) + Send>,
}

impl RunningBatch {
    /// Submits the next call, or returns all outcomes.
    fn advance(mut self) {
        if self.evaluated > BATCH_TIMEOUT {
            self.give_up(&ScriptError::new(
                ScriptErrorKind::Timeout,
                "the scripts exceeded their total time limit",
            ));
        }
        let Some(call) = self.calls.next() else {
            return (self.done)(self.outcomes);
        };
        let (owner, printed) = (self.owner, self.printed.clone());
        let values = Arc::clone(&self.values);
        let waiting = WaitingRequest {
            build: Box::new(move || call.request(&values)),
            held_bytes: self.value_bytes,
            max_duration: Limits::function().max_duration,
            submitted: Instant::now(),
            printed,
            done: Box::new(move |result, took| self.take(result, took)),
        };
        worker_pool::submit(owner, waiting);
    }

    fn take(mut self, result: Result<Value, ScriptError>, took: Duration) {
        self.evaluated += took;
        let outcome = result.map_or_else(CallOutcome::Error, CallOutcome::Value);
        self.result_bytes += outcome.result_bytes();
        let given_up = match &outcome {
            _ if self.result_bytes > MAX_RESULT_BYTES => {
                Some(ScriptError::new(ScriptErrorKind::Value, "the results exceed their total size limit"))
            }
            // Later calls would not get a worker either.
            CallOutcome::Error(error) if outcome.is_unavailable() => Some(error.clone()),
            _ => None,
        };
        match given_up {
            Some(error) => {
                self.outcomes.push(CallOutcome::Error(error.clone()));
                self.give_up(&error);
            }
            None => self.outcomes.push(outcome),
        }
        self.advance();
    }

    /// Sets this error as the outcome of all remaining calls.
    fn give_up(&mut self, error: &ScriptError) {
        self.outcomes.extend(self.calls.by_ref().map(|_| CallOutcome::Error(error.clone())));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use serde_json::json;

    use super::*;

    fn call(source: &str) -> FunctionCall {
        FunctionCall { source: source.to_owned(), value: 0, members: Vec::new() }
    }

    fn running(calls: Vec<FunctionCall>) -> (RunningBatch, Receiver<Vec<CallOutcome>>) {
        let (sender, receiver) = mpsc::channel();
        let batch = RunningBatch {
            values: Arc::new(vec![json!(1)]),
            value_bytes: 1,
            calls: calls.into_iter(),
            outcomes: Vec::new(),
            result_bytes: 0,
            owner: 0,
            printed: PrintedText::default(),
            evaluated: Duration::ZERO,
            done: Box::new(move |outcomes| drop(sender.send(outcomes))),
        };
        (batch, receiver)
    }

    #[test]
    fn a_batch_times_out_by_the_time_of_its_evaluations() {
        let (batch, outcomes) = running(vec![call("lambda d: d")]);
        batch.take(Ok(json!(1)), BATCH_TIMEOUT / 2);
        let one = CallOutcome::Value(json!(1));
        assert_eq!(outcomes.recv().unwrap(), [one.clone(), one.clone()]);
        let (batch, outcomes) = running(vec![call("lambda d: d")]);
        batch.take(Ok(json!(1)), BATCH_TIMEOUT * 2);
        let outcomes = outcomes.recv().unwrap();
        assert!(matches!(&outcomes[1], CallOutcome::Error(error) if error.kind == ScriptErrorKind::Timeout));
        assert_eq!((outcomes.len(), &outcomes[0]), (2, &one));
    }

    #[test]
    fn a_batch_resumes_after_the_outcomes_that_it_has() {
        let calls = vec![call("lambda d: 'again'"), call("lambda d: d + 1")];
        let (sender, receiver) = mpsc::channel();
        let batch = CallBatch { values: vec![json!(1)], calls };
        let had = vec![CallOutcome::Value(json!("had"))];
        batch.resume(had, 0, &PrintedText::default(), move |outcomes| drop(sender.send(outcomes)));
        let expected = ["had".into(), json!(2)].map(CallOutcome::Value);
        assert_eq!(receiver.recv().unwrap(), expected);
    }

    #[test]
    fn the_results_of_a_batch_are_limited_together() {
        let calls = vec![call("lambda d: 'x' * 1000000"); 20];
        let outcomes = CallBatch { values: vec![json!(1)], calls }.perform();
        let full = outcomes.iter().take_while(|outcome| matches!(outcome, CallOutcome::Value(_))).count();
        assert_eq!((outcomes.len(), full), (20, MAX_RESULT_BYTES / 1_000_002));
        let too_large = |outcome: &CallOutcome| matches!(outcome, CallOutcome::Error(error) if error.message == "the results exceed their total size limit");
        assert!(outcomes[full..].iter().all(too_large));
    }
}
