//! The record of one execution: what it ran, on whose behalf, and every fact of it. All views are made of it.
//!
//! A record comes from a file or from the mesh; either may come from anybody, so nothing in it is trusted to hold
//! together: its facts are folded with every check before anything else looks at them.

mod redact;

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_engine::{ExecutionState, Round, Time};
use sinew_executor::{Execution, Program};
use sinew_plan::Plan;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord, Verdict};
use sinew_protocol::{ExecutionId, Token};

use crate::exit::{Exit, Failure};
use crate::load;

pub(crate) use redact::redact;

/// The format this version reads and writes.
const FORMAT: u64 = 1;
/// Bytes of an export.
const MAX_EXPORT_BYTES: u64 = 1 << 30;

/// On whose behalf an execution runs, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    /// Caller who started it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) caller: String,
    /// The user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) user: String,
    /// The session.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) session: String,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The execution whose activation it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
}

impl From<ExecutionMeta> for About {
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
pub(crate) fn caller(token: &Token) -> String {
    token.name().unwrap_or_else(|| token.to_string())
}

/// Everything there is to know about one execution.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// On whose behalf.
    pub(crate) about: About,
    /// The execution: plan, journal, and the fold of it.
    pub(crate) execution: Execution,
    /// Commands that were given.
    pub(crate) commands: Vec<Verdict>,
    /// True if values were taken out, so that decisions cannot be made again.
    pub(crate) redacted: bool,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
struct File {
    #[serde(default)]
    execution_id: Option<String>,
    #[serde(default)]
    about: About,
    #[serde(default)]
    commands: Vec<Verdict>,
    #[serde(default)]
    redacted: bool,
}

impl Record {
    /// A record of these parts, checked: the fold relies on every fact pointing at something that is there.
    pub(crate) fn of(
        id: ExecutionId,
        plan: Plan,
        rounds: &[Round],
        about: About,
        commands: Vec<Verdict>,
    ) -> Result<Self, String> {
        Self::folded(id, program(plan)?, rounds, about, commands)
    }

    fn folded(
        id: ExecutionId,
        program: Program,
        rounds: &[Round],
        about: About,
        commands: Vec<Verdict>,
    ) -> Result<Self, String> {
        let mut state = ExecutionState::new();
        for (n, round) in rounds.iter().enumerate() {
            for fact in &round.facts {
                sinew_engine::fold(&program.graph, &mut state, round.at, fact)
                    .map_err(|bad| format!("its round {}: {bad}", n + 1))?;
            }
        }
        let execution = Execution::recover(id, program, rounds);
        Ok(Self { about, execution, commands, redacted: false })
    }

    /// A record as the mesh holds it, with the program it names.
    pub(crate) fn decode(stored: ExecutionRecord, program: Program) -> Result<Self, String> {
        let ExecutionRecord { meta, rounds, commands, .. } = stored;
        let rounds = rounds.iter().map(|round| sinew_engine::decode_round(round));
        let rounds = rounds.collect::<Result<Vec<_>, _>>().map_err(|error| format!("its rounds: {error}"))?;
        Self::folded(meta.execution.clone(), program, &rounds, About::from(meta), commands)
    }

    /// An execution that this process ran.
    pub(crate) fn local(execution: &Execution) -> Self {
        Self { about: About::default(), execution: execution.clone(), commands: Vec::new(), redacted: false }
    }

    /// As a document: plan, journal, and who asked.
    pub(crate) fn to_json(&self) -> Value {
        let mut document = json!({
            "format": FORMAT,
            "workflow": self.execution.program().name(),
            "execution_id": self.execution.id().as_str(),
            "about": self.about,
            "commands": self.commands,
            "plan": self.execution.program().graph.plan(),
            "rounds": self.execution.journal(),
        });
        if self.redacted {
            document["redacted"] = json!(true);
        }
        document
    }

    /// The record as it was after so many rounds.
    #[must_use]
    pub(crate) fn until(&self, round: usize) -> Self {
        let journal = self.execution.journal();
        let rounds = &journal[..round.min(journal.len())];
        let (id, program) = (self.execution.id().clone(), self.execution.program().clone());
        Self { execution: Execution::recover(id, program, rounds), ..self.clone() }
    }

    /// Writes it to a file.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec(&self.to_json()).unwrap_or_default();
        std::fs::write(file, text).map_err(|error| {
            Failure::new(
                Exit::Failed,
                code::FILE_CANNOT_BE_WRITTEN.as_str(),
                format!("cannot write {}: {error}", file.display()),
            )
        })
    }

    /// The plan.
    pub(crate) fn plan(&self) -> &Plan {
        self.execution.program().graph.plan()
    }

    /// Its id as text.
    pub(crate) fn id(&self) -> &str {
        self.execution.id().as_str()
    }

    /// When the last thing happened to it.
    pub(crate) fn at(&self) -> Time {
        self.execution.state().at
    }
}

/// Reads an export.
pub(crate) fn read(path: &Path) -> Result<Record, Failure> {
    let bytes = load::read_up_to(path, MAX_EXPORT_BYTES)?;
    parse(&bytes).map_err(|why| {
        let name = if path == Path::new("-") { "<stdin>".into() } else { path.display().to_string() };
        Failure::new(
            Exit::Failed,
            code::NOT_EXPORT_OF_EXECUTION.as_str(),
            format!("{name} is no export of an execution: {why}"),
        )
        .hint("make one with `sinew run FILE --export EXPORT.json` or `sinew execution export ID`")
    })
}

/// Reads an export from its bytes.
pub(crate) fn parse(bytes: &[u8]) -> Result<Record, String> {
    let mut file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => return Err(format!("it has format {other}, this version reads {FORMAT}")),
        None => return Err("it has no 'format'".to_owned()),
    }
    let plan: Plan =
        serde_json::from_value(file["plan"].take()).map_err(|error| format!("its plan: {error}"))?;
    let rounds: Vec<Round> =
        serde_json::from_value(file["rounds"].take()).map_err(|error| format!("its rounds: {error}"))?;
    let File { execution_id, about, commands, redacted } =
        serde_json::from_value(file).map_err(|error| error.to_string())?;
    let id = match execution_id {
        Some(text) => ExecutionId::parse(&text).map_err(|error| error.to_string())?,
        None => ExecutionId::of("local", "export", &plan.name),
    };
    Ok(Record { redacted, ..Record::of(id, plan, &rounds, about, commands)? })
}

/// The plan with the adapter of its dialect.
pub(crate) fn program(plan: Plan) -> Result<Program, String> {
    let dialect = sinew_dialects::by_name(&plan.dialect)
        .ok_or_else(|| format!("its plan: this version has no dialect '{}'", plan.dialect))?;
    Program::new(plan, dialect.adapter()).map_err(|error| format!("its plan: {error}"))
}

#[cfg(test)]
mod tests;
