//! The record of one execution: plan, origin and all facts. All views are created from it.
//!
//! A record comes from a file or from the mesh and is untrusted: its facts are folded with all
//! checks before any other use.

mod redact;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_documents::execution::RecordOrigin;
use sinew_documents::words;
use sinew_engine::{ExecutionState, Round, Time};
use sinew_execution::{Execution, Program};
use sinew_plan::Plan;
use sinew_protocol::ExecutionId;
use sinew_protocol::journal::{ExecutionRecord, Verdict};

pub use redact::redact;

/// The supported format version.
const FORMAT: u64 = 1;

/// Why data is not a record of an execution: the part and its problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(String);

impl RecordError {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Source of a record, which determines the commands that apply to its execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordSource {
    /// A mesh, or the process that runs the execution.
    #[default]
    Mesh,
    /// A folder with records of in-process executions.
    Folder,
    /// A file.
    File(String),
}

/// The complete record of one execution.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its source.
    pub source: RecordSource,
    /// Its origin.
    pub about: RecordOrigin,
    /// The execution: plan, journal and state.
    pub execution: Execution,
    /// Commands that it received.
    pub commands: Vec<Verdict>,
    /// True if values were redacted, so that decisions cannot be replayed.
    pub redacted: bool,
}

/// Record of an execution: plan, journal and callers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecordDocument<'r> {
    /// Version of the format.
    format: u64,
    /// Name of the workflow.
    workflow: &'r str,
    /// Id of the execution.
    execution_id: &'r str,
    /// Origin of the execution.
    about: &'r RecordOrigin,
    /// Commands that the execution received, with their callers.
    commands: &'r [Verdict],
    /// Plan of the execution.
    #[schemars(with = "serde_json::Map<String, Value>")]
    plan: &'r Plan,
    /// Facts, grouped by round.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    rounds: &'r [Round],
    /// Whether values are redacted. Absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    redacted: bool,
}

/// The parsed file. Plan and rounds remain text: as JSON values they would use several times the
/// memory of the record.
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
    /// Creates a record and checks it: the fold relies on the validity of references in facts.
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
                    .map_err(|bad| RecordError::new(format!("round {}: {bad}", n + 1)))?;
            }
        }
        let execution = Execution::recover(id, program, rounds);
        Ok(Self { source: RecordSource::default(), about, execution, commands, redacted: false })
    }

    /// Decodes a stored record with the program that it names.
    pub fn decode(stored: ExecutionRecord, program: Program) -> Result<Self, RecordError> {
        let ExecutionRecord { meta, rounds, commands, .. } = stored;
        let rounds = rounds.iter().map(|round| sinew_engine::decode_round(round));
        let rounds = rounds
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| RecordError::new(format!("rounds: {error}")))?;
        Self::folded(meta.execution.clone(), program, &rounds, RecordOrigin::from(meta), commands)
    }

    /// Creates the record of an execution of this process.
    pub fn local(execution: &Execution) -> Self {
        Self {
            source: RecordSource::default(),
            about: RecordOrigin::default(),
            execution: execution.clone(),
            commands: Vec::new(),
            redacted: false,
        }
    }

    /// Returns the document.
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

    /// Returns the document as a JSON value.
    pub fn to_json(&self) -> Value {
        // Plain data with string keys can always be serialized.
        serde_json::to_value(self.document()).unwrap_or_default()
    }

    /// Returns the record after a number of rounds.
    #[must_use]
    pub fn until(&self, round: usize) -> Self {
        let journal = self.execution.journal();
        let rounds = &journal[..round.min(journal.len())];
        let (id, program) = (self.execution.id().clone(), self.execution.program().clone());
        // At that time its process was still running.
        let source = RecordSource::default();
        Self { source, execution: Execution::recover(id, program, rounds), ..self.clone() }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        self.execution.program().graph.plan()
    }

    /// Returns the execution id.
    pub fn id(&self) -> &str {
        self.execution.id().as_str()
    }

    /// Sets the source of the record.
    #[must_use]
    pub fn read_from(self, source: RecordSource) -> Self {
        Self { source, ..self }
    }

    /// Returns true if it ran in one process instead of a mesh, so commands do not apply.
    pub fn is_of_one_process(&self) -> bool {
        match self.source {
            RecordSource::Mesh => false,
            RecordSource::Folder => true,
            // Executions on a mesh always have a caller; in-process executions never do.
            RecordSource::File(_) => self.about.caller.is_empty(),
        }
    }

    /// Returns true if it has not ended, but the process that ran it has.
    pub fn is_abandoned(&self) -> bool {
        self.is_of_one_process() && !self.execution.state().ended
    }

    /// Returns the end of the shown time: now, or the last round if the execution or its process has
    /// ended.
    pub fn seen_until(&self, now: Time) -> Time {
        if self.execution.state().ended || self.is_abandoned() { self.at() } else { now.max(self.at()) }
    }

    /// Returns true if no agent was called and every output was null.
    pub fn is_dry_run(&self) -> bool {
        self.execution.ctx().dry_run()
    }

    /// Returns the arguments that select the record in commands, quoted for a shell.
    pub fn reference(&self) -> String {
        let id = words::shell(words::short_id(self.id()));
        match &self.source {
            RecordSource::Mesh => id,
            RecordSource::Folder => format!("{id} --local"),
            RecordSource::File(_) if !self.is_of_one_process() => id,
            RecordSource::File(name) => words::shell(name),
        }
    }

    /// Returns the time of its last round.
    pub fn at(&self) -> Time {
        self.execution.state().at
    }
}

/// Parses an export.
pub fn parse(bytes: &[u8]) -> Result<Record, RecordError> {
    let file: ExportDocument<'_> =
        serde_json::from_slice(bytes).map_err(|error| RecordError::new(error.to_string()))?;
    match file.format.and_then(|format| format.get().parse::<u64>().ok()) {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(RecordError::new(format!("unsupported format {other}; this version reads {FORMAT}")));
        }
        None => return Err(RecordError::new("missing field 'format'")),
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
        // Lines and columns are relative to the member, so they would be misleading.
        let (error, place) =
            (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
        RecordError::new(format!("{name}: {}", error.strip_suffix(&place).unwrap_or(&error)))
    })
}

/// Returns the plan with the adapter of its dialect.
pub fn program(plan: Plan) -> Result<Program, RecordError> {
    let adapter = sinew_dialects::adapter(&plan.dialect)
        .ok_or_else(|| RecordError::new(format!("plan: unknown dialect '{}'", plan.dialect)))?;
    Program::new(plan, adapter).map_err(|error| RecordError::new(format!("plan: {error}")))
}

#[cfg(test)]
mod tests;
