//! Calls of functions as data: asked for by a workflow, performed by a shell, answered by a fact.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
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

/// Longest time for the calls of a batch together.
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
        let deadline = Instant::now() + BATCH_TIMEOUT;
        RunningBatch { batch: self, outcomes: Vec::new(), owner, deadline, done: Box::new(done) }.advance();
    }
}

impl CallOutcome {
    /// Reads outcomes from the JSON of a reply.
    pub fn read_all(json: &Value) -> Result<Vec<Self>, serde_json::Error> {
        Vec::deserialize(json)
    }
}

/// A batch of which some calls have been performed.
struct RunningBatch {
    batch: CallBatch,
    outcomes: Vec<CallOutcome>,
    owner: u64,
    deadline: Instant,
    done: Box<dyn FnOnce(Vec<CallOutcome>) + Send>,
}

impl RunningBatch {
    /// Submits the next call, or hands over all outcomes.
    fn advance(mut self) {
        while let Some(call) = self.batch.calls.get(self.outcomes.len()) {
            let timed_out = || ScriptError::new(ScriptErrorKind::Timeout, "the scripts took too long in all");
            let late = (Instant::now() > self.deadline).then(timed_out);
            let request = late.map_or_else(|| call.request(&self.batch.values), Err);
            match request {
                Ok(request) => {
                    return worker_pool::submit(self.owner, request, move |result| self.take(result));
                }
                Err(error) => self.outcomes.push(CallOutcome::Error(error)),
            }
        }
        (self.done)(self.outcomes);
    }

    fn take(mut self, result: Result<Value, ScriptError>) {
        if let Err(error) = &result
            && error.kind == ScriptErrorKind::Unavailable
        {
            // No later call would find a worker either.
            self.outcomes.resize(self.batch.calls.len(), CallOutcome::Error(error.clone()));
        } else {
            self.outcomes.push(result.map_or_else(CallOutcome::Error, CallOutcome::Value));
        }
        self.advance();
    }
}
