//! Runs the cases of test files in virtual time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sinew_agents::AgentSet;
use sinew_execution::Library;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::file_agents;
use sinew_operations::neighbours::CalledFiles;
use sinew_operations::posted_file::{lower_posted, posted_document, posted_workflow};
use sinew_operations::workflow_file::{self, Loaded};
use sinew_protocol::code;
use sinew_source::{Diagnostics, Document, Severity, Span, VariableRules};

use crate::case_file::{Case, TestFile, TestedWorkflow};
use crate::coverage::Coverage;
use crate::expectation::{self, Mismatch, NOTHING_EXPECTED};
use crate::observation::{self, CaseObservation};
use crate::posted_cases::PostedCases;
use crate::report::{CaseReport, CaseVerdict};
use crate::{agent_cases, case_file, case_search, difference, stub_check, update};

/// Selection of cases, and options of the run.
#[derive(Clone, Debug, Default)]
pub struct CaseOptions {
    /// Test files, and folders to search for them.
    pub paths: Vec<PathBuf>,
    /// Text that `FILE: NAME` of a case must contain; `None` runs all cases.
    pub filter: Option<String>,
    /// Whether to write the actual result to `expect` of failed cases.
    pub update: bool,
    /// Environment variables that application files can reference.
    pub variables: VariableRules,
}

/// Progress of a run.
#[derive(Debug)]
pub enum CaseProgress<'a> {
    /// A case has a verdict.
    Judged(&'a CaseVerdict),
    /// A file was rewritten, with these changes as a unified diff.
    Rewritten(&'a str),
}

/// Runs the cases of all test files. The report contains unreadable files.
///
/// # Errors
/// Fails if a path does not exist, or if a file cannot be written or was modified concurrently.
pub fn run_cases(
    options: &CaseOptions,
    progress: &mut dyn FnMut(CaseProgress<'_>),
) -> Result<CaseReport, Failure> {
    let files = case_search::files(&options.paths)?;
    let mut report = CaseReport { files: files.len(), ..CaseReport::default() };
    for path in &files {
        if let Some(judged) = agent_cases::judge(path, options.filter.as_deref()) {
            match judged {
                Ok(judged) => report
                    .verdicts
                    .extend(judged.into_iter().inspect(|verdict| progress(CaseProgress::Judged(verdict)))),
                Err(failure) => report.broken.push(failure),
            }
            continue;
        }
        match case_file::read(path) {
            Ok(file) => run_file(&file, options, &mut report, progress)?,
            Err(failure) => report.broken.push(failure),
        }
    }
    Ok(report)
}

/// Runs posted cases. The report contains an unreadable test file.
pub fn run_posted_cases(posted: PostedCases<'_>) -> CaseReport {
    let mut report = CaseReport { files: 1, ..CaseReport::default() };
    if let Err(failure) = judge_posted(posted, &mut report) {
        report.broken.push(failure);
    }
    report
}

fn judge_posted(posted: PostedCases<'_>, report: &mut CaseReport) -> Result<(), Failure> {
    let document = posted_document(posted.name, posted.cases.as_bytes())?;
    if let Some(judged) = agent_cases::judge_posted(&document, posted) {
        report.verdicts = judged?;
        return Ok(());
    }
    let file = case_file::from_document(Path::new(posted.name), document)?;
    let mut runner = CaseFileRunner {
        file: &file,
        variables: &VariableRules::default(),
        origin: CaseOrigin::Posted(posted),
        loaded: BTreeMap::new(),
        coverage: &mut report.coverage,
    };
    let selected: Vec<&Case> = file.cases.iter().collect();
    report.verdicts = runner.judged(&selected, true).into_iter().map(|(verdict, _)| verdict).collect();
    Ok(())
}

/// Origin of the workflows of cases.
#[derive(Clone, Copy)]
enum CaseOrigin<'a> {
    /// The disk, relative to the test file.
    Disk,
    /// Files that a client sent.
    Posted(PostedCases<'a>),
}

impl CaseOrigin<'_> {
    fn load(self, path: &Path, options: &workflow_file::Options) -> Result<Loaded, Failure> {
        let Self::Posted(posted) = self else {
            let loaded = workflow_file::workflow(path, options)?;
            file_agents::refuse_lacking_tools(&loaded, &file_agents::load(&[], path).unwrap_or_default())?;
            return Ok(loaded);
        };
        if path != Path::new(posted.file_name) {
            return Err(posted.not_sent(&path.display().to_string()));
        }
        posted_workflow(posted.file_name, posted.file.as_bytes(), options.dialect.as_deref())
    }

    /// Returns the workflows that a tested workflow can call: on disk also those of the files next
    /// to it.
    fn library(self, loaded: &Loaded, variables: &VariableRules) -> Result<Library, Failure> {
        if matches!(self, Self::Posted(_)) {
            return loaded.library();
        }
        let options =
            workflow_file::Options { variables: variables.clone(), ..workflow_file::Options::default() };
        CalledFiles::of(loaded, &options)?.library(loaded)
    }

    /// Returns the agents next to the workflow of a case, as far as they can be read.
    fn agents(self, case: &Case) -> AgentSet {
        match (self, &case.subject) {
            (Self::Disk, TestedWorkflow::File(path, _)) => file_agents::load(&[], path).unwrap_or_default(),
            _ => AgentSet::default(),
        }
    }

    fn lower(
        self,
        path: &Path,
        document: Document,
        options: &workflow_file::Options,
    ) -> Result<Loaded, Failure> {
        match self {
            Self::Disk => workflow_file::lower(path, document, options),
            Self::Posted(_) => {
                lower_posted(&path.display().to_string(), document, options.dialect.as_deref())
            }
        }
    }
}

/// Runs the cases of a file, and rewrites the file if requested.
fn run_file(
    file: &TestFile,
    options: &CaseOptions,
    report: &mut CaseReport,
    progress: &mut dyn FnMut(CaseProgress<'_>),
) -> Result<(), Failure> {
    let mut runner = CaseFileRunner {
        file,
        variables: &options.variables,
        origin: CaseOrigin::Disk,
        loaded: BTreeMap::new(),
        coverage: &mut report.coverage,
    };
    let mut edits = Vec::new();
    let text = file.sources.get(0).map(|source| Arc::clone(&source.text)).unwrap_or_default();
    let is_selected = |case: &&Case| {
        let full = format!("{}: {}", file.path.display(), case.name);
        options.filter.as_ref().is_none_or(|part| full.contains(part.as_str()))
    };
    let selected: Vec<&Case> = file.cases.iter().filter(is_selected).collect();
    let judged = runner.judged(&selected, options.filter.is_none());
    for (case, (mut verdict, seen)) in selected.into_iter().zip(judged) {
        if let (true, Some(seen)) = (options.update && !verdict.passed(), &seen) {
            let made = update::edits(&text, case, seen, &verdict.found);
            // A refused signal or an unlisted agent cannot become an expectation.
            let only = |one: &Mismatch| {
                one.update.is_some() || case.expect.is_none() && one.what == NOTHING_EXPECTED
            };
            verdict.updated = !made.is_empty() && verdict.found.iter().all(only);
            edits.extend(made);
        }
        progress(CaseProgress::Judged(&verdict));
        report.verdicts.push(verdict);
    }
    if !edits.is_empty() {
        progress(CaseProgress::Rewritten(&rewrite(&file.path, &text, edits)?));
    }
    Ok(())
}

/// Runs the cases of one file.
struct CaseFileRunner<'a> {
    file: &'a TestFile,
    variables: &'a VariableRules,
    origin: CaseOrigin<'a>,
    loaded: BTreeMap<(PathBuf, Option<String>), Result<Loaded, Failure>>,
    coverage: &'a mut Coverage,
}

impl CaseFileRunner<'_> {
    fn case(&mut self, case: &Case) -> (CaseVerdict, Option<CaseObservation>) {
        let mut verdict = CaseVerdict {
            file: self.file.path.display().to_string(),
            sources: self.file.sources.clone(),
            span: case.span,
            name: case.name.clone(),
            found: Vec::new(),
            elapsed: 0,
            updated: false,
        };
        let seen = match self.judge(case, &mut verdict) {
            Ok(seen) => seen,
            Err(failure) => {
                verdict.found.push(Mismatch::new(
                    case.subject_span,
                    "the workflow cannot be run",
                    words(&failure),
                ));
                None
            }
        };
        (verdict, seen)
    }

    fn judge(&mut self, case: &Case, verdict: &mut CaseVerdict) -> Result<Option<CaseObservation>, Failure> {
        let inline;
        let (loaded, name, base) = match &case.subject {
            TestedWorkflow::File(path, name) => {
                let key = (path.clone(), case.dialect.clone());
                let options = workflow_file::Options {
                    dialect: case.dialect.clone(),
                    variables: self.variables.clone(),
                    ..workflow_file::Options::default()
                };
                let origin = self.origin;
                let loaded = self.loaded.entry(key).or_insert_with(|| origin.load(path, &options));
                (loaded.as_ref(), name.as_deref(), None)
            }
            TestedWorkflow::Inline(node) => {
                inline = self.inline(case, node);
                (inline.as_ref(), None, Some(node.span))
            }
        };
        if let Some(want) = &case.invalid {
            verdict.found = refused(want, loaded, base);
            return Ok(None);
        }
        let loaded = loaded.map_err(Clone::clone)?;
        let program = workflow_file::program(loaded.dialect, loaded.pick(name)?)?;
        let library = Arc::new(self.origin.library(loaded, self.variables)?);
        let seen = observation::run(case, &program, &library, &[]);
        for execution in &seen.executions {
            self.coverage.add(execution);
        }
        verdict.elapsed = seen.elapsed;
        verdict.found = found(case, &seen);
        let plan = program.graph.plan();
        verdict.found.extend(stub_check::misfits(case, plan, &self.origin.agents(case)));
        verdict.found.extend(crashes(case, &program, &library, &seen));
        Ok(Some(seen))
    }

    /// Judges cases in order. With all cases of the file, also finds the stubs that none of them used.
    fn judged(&mut self, cases: &[&Case], are_all: bool) -> Vec<(CaseVerdict, Option<CaseObservation>)> {
        let mut judged: Vec<_> = cases.iter().map(|case| self.case(case)).collect();
        if are_all {
            let seen: Vec<_> =
                cases.iter().copied().zip(judged.iter().map(|(_, seen)| seen.as_ref())).collect();
            for (n, mismatch) in stub_check::unused(&seen) {
                judged[n].0.found.push(mismatch);
            }
        }
        judged
    }

    /// Loads an inline definition. Its paths are relative to the test file.
    fn inline(&self, case: &Case, node: &sinew_source::Node) -> Result<Loaded, Failure> {
        let stem = self.file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let path = self.file.path.with_file_name(stem.trim_end_matches(".test").to_owned() + ".yaml");
        let document = Document { root: node.clone(), sources: self.file.sources.clone() };
        let options =
            workflow_file::Options { dialect: case.dialect.clone(), ..workflow_file::Options::default() };
        self.origin.lower(&path, document, &options)
    }
}

/// Returns all mismatches of a run.
fn found(case: &Case, seen: &CaseObservation) -> Vec<Mismatch> {
    let mut found: Vec<Mismatch> = seen
        .wrong
        .iter()
        .map(|line| Mismatch::new(case.span, "an agent has no stub", vec![line.clone()]))
        .collect();
    let refused = |line: &String| Mismatch::new(case.span, "a signal was rejected", vec![line.clone()]);
    found.extend(seen.refused.iter().map(refused));
    if let Some(expect) = &case.expect {
        found.extend(expectation::check(expect, seen));
    } else {
        let line = "add `expect` or `invalid` to the case; --update writes the observed results".to_owned();
        found.push(Mismatch::new(case.span, NOTHING_EXPECTED, vec![line]));
    }
    found
}

/// Checks that crashes do not change the result of a case.
fn crashes(
    case: &Case,
    program: &sinew_execution::Program,
    library: &Arc<Library>,
    seen: &CaseObservation,
) -> Vec<Mismatch> {
    let Some((_, place)) = case.crashes.first() else { return Vec::new() };
    let beyond = case.crashes.iter().filter(|(n, _)| *n > seen.facts).map(|(n, span)| {
        let line = format!("there is no fact {n}: the run has {}", seen.facts);
        Mismatch::new(*span, "the fault did not occur", vec![line])
    });
    let mut found: Vec<Mismatch> = beyond.collect();
    let at: Vec<usize> = case.crashes.iter().map(|(n, _)| *n).collect();
    let again = observation::run(case, program, library, &at);
    let differences = difference::differences(&seen.essence(), &again.essence(), false);
    if !differences.is_empty() {
        let what = "the result differs after a crash (expected: without)";
        found.push(Mismatch::new(*place, what, difference::lines(&differences)));
    }
    found
}

fn refused(
    want: &sinew_source::Node,
    loaded: Result<&Loaded, &Failure>,
    base: Option<Span>,
) -> Vec<Mismatch> {
    let diagnostics = match loaded {
        // Some dialects accept a workflow that cannot run, with a warning.
        Ok(loaded) => {
            let mut all = Diagnostics::default();
            let errors = loaded.workflows.iter().flat_map(|lowered| &lowered.warnings.items);
            all.extend(errors.filter(|item| item.severity == Severity::Error).cloned());
            all
        }
        Err(failure) => failure.diagnostics.clone().unwrap_or_else(|| {
            let mut all = Diagnostics::default();
            all.push(sinew_source::Diagnostic::error(failure.code, failure.message.clone()));
            all
        }),
    };
    expectation::refused(want, &diagnostics, base)
}

fn words(failure: &Failure) -> Vec<String> {
    let mut lines: Vec<String> = match &failure.diagnostics {
        Some(diagnostics) => {
            sinew_source::render_text(diagnostics, false).lines().map(str::to_owned).collect()
        }
        None => vec![format!("{} [{}]", failure.message, failure.code)],
    };
    lines.extend(failure.hint.iter().map(|hint| format!("hint: {hint}")));
    lines
}

/// Rewrites the file unless it was modified concurrently. Returns the diff.
fn rewrite(path: &Path, text: &str, edits: Vec<update::TextEdit>) -> Result<String, Failure> {
    let old = String::from_utf8(workflow_file::read(path)?).unwrap_or_default();
    let mark = if old.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    if old.trim_start_matches('\u{feff}') != text {
        let why = format!("{} was changed while its tests ran", path.display());
        return Err(Failure::new(
            FailureKind::Conflict,
            code::TEST_FILE_CHANGED_WHILE_ITS_TESTS_RAN.as_str(),
            why,
        ));
    }
    let new = update::apply(text, edits);
    std::fs::write(path, format!("{mark}{new}")).map_err(|error| {
        Failure::new(
            FailureKind::Failed,
            code::FILE_CANNOT_BE_WRITTEN.as_str(),
            format!("cannot write {}: {error}", path.display()),
        )
    })?;
    let name = path.display().to_string();
    let diff = similar::TextDiff::from_lines(text, &new);
    Ok(diff.unified_diff().context_radius(1).header(&name, &name).to_string())
}
