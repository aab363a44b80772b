//! Steps of a handler: work that is done once, and whose result is available when the task is
//! redelivered.

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

/// Maximum length of a step's name.
const MAX_STEP_NAME: usize = 64;
/// Processes that may take over the task in succession while this one starts.
const MAX_BEGIN_TRIES: u32 = 16;

/// Effect of repeated work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEffect {
    /// None beyond that of the first time. After a crash the work is done again, under the same
    /// key.
    Repeat,
    /// Each time the work has an effect. It is started at most once: after a crash during the work
    /// the step fails, because it may have taken effect.
    Once,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StepEntry {
    /// The process that wrote it.
    by: String,
    /// Time in milliseconds since 1970.
    at: u64,
    #[serde(flatten)]
    body: StepEntryBody,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StepEntryBody {
    /// A process starts or takes over the task.
    Begin { task: String, attempt: u32, delivery: u64 },
    /// Work with side effects is about to start.
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
    /// Started by an earlier process, with unknown outcome.
    Unknown,
    Succeeded(Value),
    Failed(Fault),
}

/// The log as known to this process.
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

/// The steps of a task. A step is work with a name; its result is recorded on the mesh. When the
/// task is redelivered (its process crashed, a replica took over, the activation is retried), the
/// recorded result is returned without repeating the work.
///
/// ```no_run
/// # use sinew_agent::{Context, Failure, StepEffect};
/// # async fn charge(_: &str) -> Result<String, Failure> { Ok(String::new()) }
/// # async fn handler(context: Context) -> Result<String, Failure> {
/// let steps = context.steps();
/// let order = steps.run("order", StepEffect::Repeat, |_| async { Ok("A-17".to_owned()) }).await?;
/// // The key is the same for all attempts of this step: send it, so that the receiver can recognize a repetition.
/// let receipt = steps.run("charge", StepEffect::Once, |key| async move { charge(&key).await }).await?;
/// # Ok(order + &receipt)
/// # }
/// ```
///
/// Steps are identified by name and by the number of earlier steps of this name in the handler, not
/// by their input. So a handler names different work differently, and uses names in the same order
/// each time.
#[derive(Clone)]
pub struct Steps {
    book: Arc<StepBook>,
    counts: Arc<Mutex<HashMap<String, u32>>>,
}

impl Steps {
    pub(crate) fn new(book: Arc<StepBook>, counts: Arc<Mutex<HashMap<String, u32>>>) -> Self {
        Self { book, counts }
    }

    /// Runs a step unless its result is recorded, and records the result. `work` gets the key of
    /// the step. A name has 1 to 64 letters, digits, `-` and `_`.
    ///
    /// A retryable failure is not recorded: the next attempt repeats the work. Other failures are
    /// recorded, and returned to later attempts, too. Fails with SINEW-5117 if an earlier process
    /// stopped during a [`StepEffect::Once`] step.
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
        // The position is that of the call, so that concurrent steps keep their order.
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
    /// Returns the state of a step; `None` if its work must be done now, which is recorded first
    /// for work with side effects.
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

    /// Reads the log and records the start of the task.
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
                // The outcome of the work is known, and it may be repeated.
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
        "a process stopped during step '{name}', which may have taken effect: determine whether it has, and \
         continue with a step of another name"
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
