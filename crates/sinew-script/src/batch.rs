//! Calls of functions as data: asked for by a workflow, performed by a shell, answered by a fact.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
    vec,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::{ScriptError, ScriptErrorKind},
    function::Function,
    limits::Limits,
    request::EvaluationRequest,
    worker_pool,
};

/// Longest time for the calls of a batch together, without their waits for a worker.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Functions to call, each over one of some values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallBatch {
    /// Values that functions are called with.
    pub values: Vec<Value>,
    /// The calls, in the order of their outcomes.
    pub calls: Vec<FunctionCall>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Text of the function.
    pub source: String,
    /// Which of the values it is called with.
    pub value: usize,
    /// Members of the argument that hold the value, each a path of names joined by dots. Empty: the value is the
    /// argument.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

/// What came of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The function's result.
    Value(Value),
    /// Why there is none.
    Error(ScriptError),
}

impl FunctionCall {
    fn argument(&self, values: &[Value]) -> Result<Value, ScriptError> {
        let Some(value) = values.get(self.value) else {
            return Err(ScriptError::new(ScriptErrorKind::Value, "the value of a call is missing"));
        };
        if self.members.is_empty() {
            return Ok(value.clone());
        }
        let mut argument = Map::new();
        for member in &self.members {
            match member.split_once('.') {
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
    /// Reads a batch from its JSON.
    pub fn read(json: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(json)
    }

    /// The batch as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Performs the calls and waits for them.
    pub fn perform(self) -> Vec<CallOutcome> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(0, move |outcomes| drop(sender.send(outcomes)));
        receiver.recv().unwrap_or_default()
    }

    /// Performs the calls one after the other on threads of the workers; `done` is called there with all outcomes.
    /// Owners take turns after each call.
    pub fn submit(self, owner: u64, done: impl FnOnce(Vec<CallOutcome>) + Send + 'static) {
        self.resume(Vec::new(), owner, done);
    }

    /// Performs the calls after those that have an outcome already, like [`CallBatch::submit`]. `done` is called with
    /// the outcomes of all calls.
    pub fn resume(
        self,
        outcomes: Vec<CallOutcome>,
        owner: u64,
        done: impl FnOnce(Vec<CallOutcome>) + Send + 'static,
    ) {
        let mut calls = self.calls;
        calls.drain(..outcomes.len().min(calls.len()));
        RunningBatch {
            values: Arc::new(self.values),
            calls: calls.into_iter(),
            outcomes,
            owner,
            evaluated: Duration::ZERO,
            done: Box::new(done),
        }
        .advance();
    }
}

impl CallOutcome {
    /// Whether the call was not performed for want of a worker, so that it may be repeated.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Error(error) if error.kind == ScriptErrorKind::Unavailable)
    }

    /// Reads outcomes from the JSON of a reply.
    pub fn read_all(json: &Value) -> Result<Vec<Self>, serde_json::Error> {
        Vec::deserialize(json)
    }
}

/// A batch of which some calls have been performed.
struct RunningBatch {
    values: Arc<Vec<Value>>,
    /// Calls without an outcome.
    calls: vec::IntoIter<FunctionCall>,
    outcomes: Vec<CallOutcome>,
    owner: u64,
    /// Time that the calls took so far, without their waits for a worker.
    evaluated: Duration,
    done: Box<dyn FnOnce(Vec<CallOutcome>) + Send>,
}

impl RunningBatch {
    /// Submits the next call, or hands over all outcomes.
    fn advance(mut self) {
        if self.evaluated > BATCH_TIMEOUT {
            self.give_up(&ScriptError::new(ScriptErrorKind::Timeout, "the scripts took too long in all"));
        }
        let Some(call) = self.calls.next() else {
            return (self.done)(self.outcomes);
        };
        let (owner, values) = (self.owner, Arc::clone(&self.values));
        let build = move || call.request(&values);
        let done = move |result, took| self.take(result, took);
        worker_pool::submit(owner, Limits::function().max_duration, build, done);
    }

    fn take(mut self, result: Result<Value, ScriptError>, took: Duration) {
        self.evaluated += took;
        let unavailable = result.as_ref().err().filter(|error| error.kind == ScriptErrorKind::Unavailable);
        // No later call would find a worker either.
        let given_up = unavailable.cloned();
        self.outcomes.push(result.map_or_else(CallOutcome::Error, CallOutcome::Value));
        if let Some(error) = given_up {
            self.give_up(&error);
        }
        self.advance();
    }

    /// Gives all calls without an outcome this error.
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
            calls: calls.into_iter(),
            outcomes: Vec::new(),
            owner: 0,
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
        batch.resume(vec![CallOutcome::Value(json!("had"))], 0, move |outcomes| drop(sender.send(outcomes)));
        let expected = ["had".into(), json!(2)].map(CallOutcome::Value);
        assert_eq!(receiver.recv().unwrap(), expected);
    }
}
