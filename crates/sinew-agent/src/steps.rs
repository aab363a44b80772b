//! Steps of a handler: work that is done once, and whose result is there when the task comes again.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::{Fault, code};
use tokio::sync::Mutex as AsyncMutex;

use crate::failure::{Failure, bounded};
use crate::step_log::{AppendOutcome, StepLog};

/// Longest name of a step.
const MAX_STEP_NAME: usize = 64;
/// Processes that may take the task up one after the other while this one begins.
const MAX_BEGIN_TRIES: u32 = 16;

/// Effect of work that is done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEffect {
    /// None, or none beyond that of the first time. After a crash during the work it is done again, under the same key.
    Repeat,
    /// The work acts each time. It is begun at most once: after a crash during the work the step fails, because it may have
    /// taken effect.
    Once,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StepEntry {
    /// The process that wrote it.
    by: String,
    /// When, in milliseconds since 1970.
    at: u64,
    #[serde(flatten)]
    body: StepEntryBody,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StepEntryBody {
    /// A process takes the task up.
    Begin { task: String, attempt: u32, delivery: u64 },
    /// Work that acts is about to begin.
    Call { step: String, nth: u32 },
    /// The end of a step.
    Done {
        step: String,
        nth: u32,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        result: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
}

/// State of a step.
#[derive(Clone, Debug, PartialEq)]
enum StepState {
    /// Begun by an earlier process, which did not say how it ended.
    Unknown,
    Succeeded(Value),
    Failed(Fault),
}

/// The log as this process knows it.
struct OpenedSteps {
    places: u64,
    states: HashMap<(String, u32), StepState>,
}

/// The task as steps record it.
#[derive(Clone, Debug)]
pub(crate) struct StepTask {
    pub(crate) activation: String,
    pub(crate) task: String,
    pub(crate) attempt: u32,
    pub(crate) delivery: u64,
}

/// State of the steps of one task in one process.
pub(crate) struct StepBook {
    log: StepLog,
    task: StepTask,
    by: String,
    opened: AsyncMutex<Option<OpenedSteps>>,
}

impl StepBook {
    pub(crate) fn new(log: StepLog, task: StepTask) -> Self {
        let by = uuid::Uuid::now_v7().simple().to_string();
        Self { log, task, by, opened: AsyncMutex::new(None) }
    }
}

/// The steps of a task. A step is work with a name; its result is recorded on the mesh. When the task comes again (its
/// process died, a replica took over, the activation is tried again), the recorded result is returned and the work is not
/// done.
///
/// ```no_run
/// # use sinew_agent::{Context, Failure, StepEffect};
/// # async fn charge(_: &str) -> Result<String, Failure> { Ok(String::new()) }
/// # async fn handler(context: Context) -> Result<String, Failure> {
/// let steps = context.steps();
/// let order = steps.run("order", StepEffect::Repeat, |_| async { Ok("A-17".to_owned()) }).await?;
/// // The key is the same for all tries of this step: send it along, and the other side can recognise a repetition.
/// let receipt = steps.run("charge", StepEffect::Once, |key| async move { charge(&key).await }).await?;
/// # Ok(order + &receipt)
/// # }
/// ```
///
/// Steps are told apart by name and by the number of earlier steps of this name in the handler, never by what they work on.
/// So a handler names different work differently, and uses names in the same order each time.
#[derive(Clone)]
pub struct Steps {
    book: Arc<StepBook>,
    counts: Arc<Mutex<HashMap<String, u32>>>,
}

impl Steps {
    pub(crate) fn new(book: Arc<StepBook>, counts: Arc<Mutex<HashMap<String, u32>>>) -> Self {
        Self { book, counts }
    }

    /// Runs a step unless its result is recorded, and records the result. `work` gets the key of the step. A name has 1 to 64
    /// letters, digits, `-` and `_`.
    ///
    /// A failure that may pass is not recorded: the next attempt does the work again. Other failures are, and are returned to
    /// later attempts too. Fails with SINEW-5117 if the step acts and an earlier process stopped during it.
    pub fn run<T, F, Fut>(
        &self,
        name: &str,
        effect: StepEffect,
        work: F,
    ) -> impl Future<Output = Result<T, Failure>> + Send + use<T, F, Fut>
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(String) -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        // The position is that of the call: steps that run at the same time keep their order.
        let nth = self.position(name);
        let (book, name) = (Arc::clone(&self.book), name.to_owned());
        async move {
            let at = (check_name(name)?, nth);
            match book.begin(&at, effect).await? {
                Some(StepState::Succeeded(value)) => return typed(&at.0, value),
                Some(StepState::Failed(fault)) => return Err(fault.into()),
                Some(StepState::Unknown) => return Err(unknown(&at.0)),
                None => {}
            }
            let key = format!("{}-{}-{}", book.task.activation, at.0, at.1);
            let result = match work(key).await {
                Ok(value) => Ok((to_value(&at.0, &value)?, value)),
                Err(failure) => Err(bounded(failure.into_fault())),
            };
            let (recorded, returned) = match result {
                Ok((json, value)) => (Ok(json), Ok(value)),
                Err(fault) => (Err(fault.clone()), Err(Failure::from(fault))),
            };
            book.end(&at, recorded).await?;
            returned
        }
    }

    fn position(&self, name: &str) -> u32 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name.to_owned()).or_default();
        let nth = *count;
        *count = count.saturating_add(1);
        nth
    }
}

impl StepBook {
    /// The state of a step; none if its work is to be done now, which is recorded for work that acts.
    async fn begin(&self, at: &(String, u32), effect: StepEffect) -> Result<Option<StepState>, Failure> {
        let mut opened = self.opened.lock().await;
        let steps = match &mut *opened {
            Some(steps) => steps,
            none => none.insert(self.open().await?),
        };
        if let Some(state) = steps.states.get(at) {
            return Ok(Some(state.clone()));
        }
        if effect == StepEffect::Once {
            self.append(steps, StepEntryBody::Call { step: at.0.clone(), nth: at.1 }).await?;
        }
        Ok(None)
    }

    async fn end(&self, at: &(String, u32), result: Result<Value, Fault>) -> Result<(), Failure> {
        let (step, nth) = at.clone();
        let (result, fault) = match result {
            Ok(value) => (value, None),
            Err(fault) => (Value::Null, Some(fault)),
        };
        let mut opened = self.opened.lock().await;
        match &mut *opened {
            Some(steps) => self.append(steps, StepEntryBody::Done { step, nth, result, fault }).await,
            None => Ok(()),
        }
    }

    /// Reads the log and takes the task up behind it.
    async fn open(&self) -> Result<OpenedSteps, Failure> {
        let mut steps = OpenedSteps { places: 0, states: HashMap::new() };
        let StepTask { task, attempt, delivery, .. } = self.task.clone();
        let begin = StepEntryBody::Begin { task, attempt, delivery };
        for _ in 0..MAX_BEGIN_TRIES {
            for record in self.log.read(steps.places).await? {
                steps.add(&record)?;
            }
            let place = steps.places;
            if self.write(place, begin.clone()).await? == AppendOutcome::Written {
                steps.places += 1;
                return Ok(steps);
            }
        }
        Err(self.taken_over())
    }

    async fn append(&self, steps: &mut OpenedSteps, body: StepEntryBody) -> Result<(), Failure> {
        match self.write(steps.places, body.clone()).await? {
            AppendOutcome::Written => {
                steps.places += 1;
                if let StepEntryBody::Done { .. } = body {
                    steps.fold(body);
                }
                Ok(())
            }
            AppendOutcome::Taken => Err(self.taken_over()),
        }
    }

    async fn write(&self, place: u64, body: StepEntryBody) -> Result<AppendOutcome, Failure> {
        let entry = StepEntry { by: self.by.clone(), at: now_ms(), body };
        let bytes = serde_json::to_vec(&entry).map_err(|error| unusable(&error.to_string()))?;
        self.log.append(place, Bytes::from(bytes), None).await
    }

    fn taken_over(&self) -> Failure {
        self.log.give_way();
        let text = "another process took over this task";
        Fault::error(code::TASK_TAKEN_OVER.as_str(), text).into()
    }
}

impl OpenedSteps {
    fn add(&mut self, record: &Bytes) -> Result<(), Failure> {
        let entry: StepEntry =
            serde_json::from_slice(record).map_err(|error| unusable(&error.to_string()))?;
        self.places += 1;
        self.fold(entry.body);
        Ok(())
    }

    fn fold(&mut self, body: StepEntryBody) {
        match body {
            StepEntryBody::Begin { .. } => {}
            StepEntryBody::Call { step, nth } => {
                self.states.insert((step, nth), StepState::Unknown);
            }
            StepEntryBody::Done { step, nth, result, fault } => match fault {
                // The fate of the work is known, and it may be done again.
                Some(fault) if fault.retryable => drop(self.states.remove(&(step, nth))),
                Some(fault) => drop(self.states.insert((step, nth), StepState::Failed(fault))),
                None => drop(self.states.insert((step, nth), StepState::Succeeded(result))),
            },
        }
    }
}

fn check_name(name: String) -> Result<String, Failure> {
    let good = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if (1..=MAX_STEP_NAME).contains(&name.len()) && name.chars().all(good) {
        return Ok(name);
    }
    let text = format!(
        "{:?} is not a name of a step: 1 to {MAX_STEP_NAME} letters, digits, - and _",
        crate::failure::short(&name, MAX_STEP_NAME)
    );
    Err(Fault::invalid(code::STEP_NOT_VALID.as_str(), text).into())
}

fn to_value<T: Serialize>(name: &str, value: &T) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| {
        let text = format!("the result of step '{name}' is not JSON: {error}");
        Failure::from(Fault::invalid(code::STEP_NOT_VALID.as_str(), text))
    })
}

fn typed<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| {
        let text = format!("the recorded result of step '{name}' is of another type: {error}");
        Failure::from(Fault::invalid(code::STEP_NOT_VALID.as_str(), text))
    })
}

fn unknown(name: &str) -> Failure {
    let text = format!(
        "a process stopped during step '{name}', which may have taken effect: find out whether it has, and go on \
         with a step of another name"
    );
    Fault::error(code::STEP_FATE_UNKNOWN.as_str(), text).with_retryable(false).into()
}

fn unusable(reason: &str) -> Failure {
    let text = format!("the log of the task contains a record that is not a step: {reason}");
    Fault::error(code::STEPS_UNAVAILABLE.as_str(), text).with_retryable(false).into()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
