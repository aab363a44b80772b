//! The record of one execution: what it ran, on whose behalf, and every fact of it. All views are made of it.
//!
//! A record comes from a file or from the mesh; either may come from anybody, so nothing in it is trusted to hold
//! together: its facts are folded with every check before anything else looks at them.

mod redact;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_engine::{ExecutionState, Round, Time};
use sinew_plan::Plan;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord, Verdict};
use sinew_protocol::{ExecutionId, Token};
use sinew_runtime::{Execution, Program};

use crate::words;

pub use redact::redact;

/// The format this version reads and writes.
const FORMAT: u64 = 1;

/// Reason why data is not a record of an execution: which part of it, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(String);

impl RecordError {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// On whose behalf an execution runs, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RecordOrigin {
    /// Caller who started it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub caller: String,
    /// The user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The session.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The execution whose activation it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl From<ExecutionMeta> for RecordOrigin {
    fn from(meta: ExecutionMeta) -> Self {
        Self {
            caller: caller(&meta.caller),
            user: meta.user,
            session: meta.session,
            labels: meta.labels,
            parent: meta.parent.map(|parent| parent.execution.to_string()),
        }
    }
}

/// A caller as people know it: the name behind the token of a subject.
pub fn caller(token: &Token) -> String {
    token.name().unwrap_or_else(|| token.to_string())
}

/// Where a record was read, which decides what commands can do with its execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordSource {
    /// A mesh, or the process that runs the execution.
    #[default]
    Mesh,
    /// The records that a folder keeps of executions of one process.
    Folder,
    /// The file of this name.
    File(String),
}

/// Everything there is to know about one execution.
#[derive(Clone, Debug)]
pub struct Record {
    /// Where it was read.
    pub source: RecordSource,
    /// On whose behalf.
    pub about: RecordOrigin,
    /// The execution: plan, journal, and the fold of it.
    pub execution: Execution,
    /// Commands that were given.
    pub commands: Vec<Verdict>,
    /// True if values were taken out, so that decisions cannot be made again.
    pub redacted: bool,
}

/// An execution as a document: plan, journal, and who asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecordDocument<'r> {
    /// Version of this form.
    format: u64,
    /// Name of the workflow.
    workflow: &'r str,
    /// Id of the execution.
    execution_id: &'r str,
    /// Origin of the execution.
    about: &'r RecordOrigin,
    /// Commands that it got, each with its caller.
    commands: &'r [Verdict],
    /// Plan that it follows.
    #[schemars(with = "serde_json::Map<String, Value>")]
    plan: &'r Plan,
    /// Facts, in the rounds in which they were decided.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    rounds: &'r [Round],
    /// Whether values were taken out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    redacted: bool,
}

/// The file as it is read. Plan and rounds stay text at first: as values of JSON they would take several times the memory of the
/// record.
#[derive(Deserialize)]
struct ExportDocument<'a> {
    #[serde(borrow, default)]
    format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    plan: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rounds: Option<&'a RawValue>,
    #[serde(default)]
    execution_id: Option<String>,
    #[serde(default)]
    about: RecordOrigin,
    #[serde(default)]
    commands: Vec<Verdict>,
    #[serde(default)]
    redacted: bool,
}

impl Record {
    /// A record of these parts, checked: the fold relies on every fact pointing at something that is there.
    pub fn of(
        id: ExecutionId,
        plan: Plan,
        rounds: &[Round],
        about: RecordOrigin,
        commands: Vec<Verdict>,
    ) -> Result<Self, RecordError> {
        Self::folded(id, program(plan)?, rounds, about, commands)
    }

    fn folded(
        id: ExecutionId,
        program: Program,
        rounds: &[Round],
        about: RecordOrigin,
        commands: Vec<Verdict>,
    ) -> Result<Self, RecordError> {
        let mut state = ExecutionState::new();
        for (n, round) in rounds.iter().enumerate() {
            for fact in &round.facts {
                sinew_engine::fold(&program.graph, &mut state, round.at, fact)
                    .map_err(|bad| RecordError::new(format!("its round {}: {bad}", n + 1)))?;
            }
        }
        let execution = Execution::recover(id, program, rounds);
        Ok(Self { source: RecordSource::default(), about, execution, commands, redacted: false })
    }

    /// A record as the mesh holds it, with the program it names.
    pub fn decode(stored: ExecutionRecord, program: Program) -> Result<Self, RecordError> {
        let ExecutionRecord { meta, rounds, commands, .. } = stored;
        let rounds = rounds.iter().map(|round| sinew_engine::decode_round(round));
        let rounds = rounds
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| RecordError::new(format!("its rounds: {error}")))?;
        Self::folded(meta.execution.clone(), program, &rounds, RecordOrigin::from(meta), commands)
    }

    /// An execution that this process ran.
    pub fn local(execution: &Execution) -> Self {
        Self {
            source: RecordSource::default(),
            about: RecordOrigin::default(),
            execution: execution.clone(),
            commands: Vec::new(),
            redacted: false,
        }
    }

    /// As a document: plan, journal, and who asked.
    pub fn document(&self) -> RecordDocument<'_> {
        RecordDocument {
            format: FORMAT,
            workflow: self.execution.program().name(),
            execution_id: self.execution.id().as_str(),
            about: &self.about,
            commands: &self.commands,
            plan: self.execution.program().graph.plan(),
            rounds: self.execution.journal(),
            redacted: self.redacted,
        }
    }

    /// The document as a value.
    pub fn to_json(&self) -> Value {
        // Plain data with text keys can always be written.
        serde_json::to_value(self.document()).unwrap_or_default()
    }

    /// The record as it was after so many rounds.
    #[must_use]
    pub fn until(&self, round: usize) -> Self {
        let journal = self.execution.journal();
        let rounds = &journal[..round.min(journal.len())];
        let (id, program) = (self.execution.id().clone(), self.execution.program().clone());
        // At that time its process was at work still.
        let source = RecordSource::default();
        Self { source, execution: Execution::recover(id, program, rounds), ..self.clone() }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.execution.program().graph.plan()
    }

    /// Its id as text.
    pub fn id(&self) -> &str {
        self.execution.id().as_str()
    }

    /// The record with the place where it was read.
    #[must_use]
    pub fn read_from(self, source: RecordSource) -> Self {
        Self { source, ..self }
    }

    /// Returns true if one process ran it, and not a mesh: no command can steer it.
    pub fn is_of_one_process(&self) -> bool {
        match self.source {
            RecordSource::Mesh => false,
            RecordSource::Folder => true,
            // A mesh knows the caller of every execution, a process of none.
            RecordSource::File(_) => self.about.caller.is_empty(),
        }
    }

    /// Returns true if the process that ran it is gone, so that it does not go on although it has not ended.
    pub fn is_abandoned(&self) -> bool {
        self.is_of_one_process() && !self.execution.state().ended
    }

    /// Returns the time up to which the execution lasts for somebody who looks at it now: it stands still once it has ended,
    /// or its process has.
    pub fn seen_until(&self, now: Time) -> Time {
        if self.execution.state().ended || self.is_abandoned() { self.at() } else { now.max(self.at()) }
    }

    /// Returns true if no agent was called and every output was null.
    pub fn is_dry_run(&self) -> bool {
        self.execution.ctx().dry_run()
    }

    /// Returns the arguments by which commands find the record again, as words of a shell.
    pub fn reference(&self) -> String {
        let id = words::shell(words::short_id(self.id()));
        match &self.source {
            RecordSource::Mesh => id,
            RecordSource::Folder => format!("{id} --local"),
            RecordSource::File(_) if !self.is_of_one_process() => id,
            RecordSource::File(name) => words::shell(name),
        }
    }

    /// When the last thing happened to it.
    pub fn at(&self) -> Time {
        self.execution.state().at
    }
}

/// Reads an export from its bytes.
pub fn parse(bytes: &[u8]) -> Result<Record, RecordError> {
    let file: ExportDocument<'_> =
        serde_json::from_slice(bytes).map_err(|error| RecordError::new(error.to_string()))?;
    match file.format.and_then(|format| format.get().parse::<u64>().ok()) {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(RecordError::new(format!("it has format {other}, this version reads {FORMAT}")));
        }
        None => return Err(RecordError::new("it has no 'format'")),
    }
    let plan: Plan = read_member("plan", file.plan)?;
    let rounds: Vec<Round> = read_member("rounds", file.rounds)?;
    let ExportDocument { execution_id, about, commands, redacted, .. } = file;
    let id = match execution_id {
        Some(text) => ExecutionId::parse(&text).map_err(|error| RecordError::new(error.to_string()))?,
        None => ExecutionId::of("local", "export", &plan.name),
    };
    Ok(Record { redacted, ..Record::of(id, plan, &rounds, about, commands)? })
}

fn read_member<T: DeserializeOwned>(name: &str, text: Option<&RawValue>) -> Result<T, RecordError> {
    let text = text.map_or("null", RawValue::get);
    serde_json::from_str(text).map_err(|error| {
        // Lines and columns count from the begin of the member, so they would lead people astray.
        let (error, place) =
            (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
        RecordError::new(format!("its {name}: {}", error.strip_suffix(&place).unwrap_or(&error)))
    })
}

/// The plan with the adapter of its dialect.
pub fn program(plan: Plan) -> Result<Program, RecordError> {
    let adapter = sinew_dialects::adapter(&plan.dialect).ok_or_else(|| {
        RecordError::new(format!("its plan: this version has no dialect '{}'", plan.dialect))
    })?;
    Program::new(plan, adapter).map_err(|error| RecordError::new(format!("its plan: {error}")))
}

#[cfg(test)]
mod tests;
