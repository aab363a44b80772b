//! `sinew test`: cases of workflows, offline and in virtual time.

mod agent_cases;
mod check;
mod coverage;
mod diff;
mod file;
mod find;
mod report;
mod run;
mod stub;
mod update;

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sinew_runtime::Library;
use sinew_source::{Diagnostics, Document, Severity, Span, VariableRules};

use crate::exit::{Exit, Failure};
use crate::load::{self, Loaded};
use crate::output::Output;
use check::Mismatch;
use coverage::Coverage;
use file::{Case, Subject, TestFile};
use report::CaseVerdict;

const EXAMPLES: &str = "Examples:
  sinew test                                  # every *.test.yaml below this folder
  sinew test flows/order.test.yaml --filter refund
  sinew test --update                         # write what was seen into `expect`, then look at the diff
  sinew test --coverage -O coverage.svg
  sinew test --format junit > report.xml";

/// Arguments of `sinew test`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TestArgs {
    /// Test files, or folders with `*.test.yaml`, `*.test.yml` and `*.test.json` [default: this folder]
    paths: Vec<PathBuf>,
    /// Only cases with this text in `FILE: NAME`
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Write what was seen into `expect` of the cases that fail, and show what changed
    #[arg(long)]
    update: bool,
    /// Show which nodes, edges and branches no case reached
    #[arg(long)]
    coverage: bool,
    /// Draw the coverage (SVG)
    #[arg(short = 'O', long, value_name = "FILE", requires = "coverage")]
    out: Option<PathBuf>,
    /// A report for build servers, instead of text
    #[arg(long, value_enum)]
    format: Option<ReportFormat>,
    #[command(flatten)]
    variables: load::VariableArgs,
}

/// Reports beside those of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// JUnit XML
    Junit,
}

/// JSON Schema of test files.
pub(crate) fn schema() -> Value {
    file::schema()
}

/// JSON Schema of test files of agents.
pub(crate) fn agent_schema() -> Value {
    agent_cases::schema()
}

/// Runs test files.
pub(crate) fn test(args: &TestArgs, output: &Output) -> Result<Exit, Failure> {
    let paths = if args.paths.is_empty() { vec![PathBuf::from(".")] } else { args.paths.clone() };
    let variables = args.variables.rules()?;
    let files = find::files(&paths)?;
    let mut coverage = Coverage::default();
    let mut verdicts = Vec::new();
    let mut broken = Vec::new();
    let people = args.format.is_none() && !output.is_machine();
    for path in &files {
        if let Some(judged) = agent_cases::judge(path, args.filter.as_deref()) {
            match judged {
                Ok(judged) => verdicts.extend(judged.into_iter().inspect(|verdict| {
                    if people {
                        output.styled(&verdict.text(output.color, output.ascii));
                    }
                })),
                Err(failure) => broken.push(failure),
            }
            continue;
        }
        let file = match file::read(path) {
            Ok(file) => file,
            Err(failure) => {
                broken.push(failure);
                continue;
            }
        };
        let mut bench =
            Bench { file: &file, variables: &variables, loaded: BTreeMap::new(), coverage: &mut coverage };
        let mut edits = Vec::new();
        let text = file.sources.get(0).map(|source| Arc::clone(&source.text)).unwrap_or_default();
        for case in &file.cases {
            let full = format!("{}: {}", path.display(), case.name);
            if args.filter.as_ref().is_some_and(|part| !full.contains(part.as_str())) {
                continue;
            }
            let (mut verdict, seen) = bench.case(case);
            if let (true, Some(seen)) = (args.update && !verdict.passed(), &seen) {
                let made = update::edits(&text, case, seen, &verdict.found);
                // A refused signal or an unlisted agent cannot be written down as an expectation.
                let only =
                    |one: &Mismatch| one.update.is_some() || case.expect.is_none() && one.what == NOTHING;
                verdict.updated = !made.is_empty() && verdict.found.iter().all(only);
                edits.extend(made);
            }
            if people {
                output.styled(&verdict.text(output.color, output.ascii));
            }
            verdicts.push(verdict);
        }
        if !edits.is_empty() {
            rewrite(path, &text, edits, output)?;
        }
    }
    if let Some(out) = &args.out {
        draw(&coverage, out)?;
    }
    Ok(finish(args, &verdicts, &broken, files.len(), &coverage, output))
}

fn finish(
    args: &TestArgs,
    verdicts: &[CaseVerdict],
    broken: &[Failure],
    files: usize,
    coverage: &Coverage,
    output: &Output,
) -> Exit {
    for failure in broken {
        output.failure(failure);
    }
    let passed = verdicts.iter().filter(|verdict| verdict.passed()).count();
    if args.format == Some(ReportFormat::Junit) {
        output.text(&report::junit(verdicts));
    } else if output.is_machine() {
        let mut document = json!({
            "cases": verdicts.iter().map(CaseVerdict::json).collect::<Vec<_>>(),
            "passed": passed,
            "failed": verdicts.len() - passed,
            "broken_files": broken.len(),
        });
        if args.coverage {
            document["coverage"] = coverage.json();
        }
        output.value(&document, |_| String::new());
    } else {
        if args.coverage {
            output.text(&coverage.text());
        }
        output.text(&report::summary(verdicts, files, broken.len()));
    }
    if verdicts.is_empty() && broken.is_empty() {
        let code = code::NO_TEST_CASE_FOUND;
        output.error_line(&format!("error: no test case was found [{code}]"));
        output.note(&format!("hint: test files are called NAME.test.yaml; `sinew explain {code}` shows one"));
    }
    let good = verdicts.iter().all(|verdict| verdict.passed() || verdict.updated);
    if good && broken.is_empty() && !verdicts.is_empty() { Exit::Ok } else { Exit::Failed }
}

/// Message for a case without expectations.
const NOTHING: &str = "nothing is expected";

/// Cases of one file at work.
struct Bench<'a> {
    file: &'a TestFile,
    variables: &'a VariableRules,
    loaded: BTreeMap<(PathBuf, Option<String>), Result<Loaded, Failure>>,
    coverage: &'a mut Coverage,
}

impl Bench<'_> {
    fn case(&mut self, case: &Case) -> (CaseVerdict, Option<run::Seen>) {
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
                verdict.found.push(Mismatch::new(case.span, "the workflow cannot be run", words(&failure)));
                None
            }
        };
        (verdict, seen)
    }

    fn judge(&mut self, case: &Case, verdict: &mut CaseVerdict) -> Result<Option<run::Seen>, Failure> {
        let inline;
        let (loaded, name, base) = match &case.subject {
            Subject::File(path, name) => {
                let key = (path.clone(), case.dialect.clone());
                let options = load::Options {
                    dialect: case.dialect.clone(),
                    variables: self.variables.clone(),
                    ..load::Options::default()
                };
                let loaded = self.loaded.entry(key).or_insert_with(|| load::workflow(path, &options));
                (loaded.as_ref(), name.as_deref(), None)
            }
            Subject::Inline(node) => {
                inline = self.inline(case, node);
                (inline.as_ref(), None, Some(node.span))
            }
        };
        if let Some(want) = &case.invalid {
            verdict.found = refused(want, loaded, base);
            return Ok(None);
        }
        let loaded = loaded.map_err(copy)?;
        let program = load::program(loaded.dialect, loaded.pick(name)?)?;
        let library = Arc::new(loaded.library()?);
        let seen = run::run(case, &program, &library, &[]);
        for execution in &seen.executions {
            self.coverage.add(execution);
        }
        verdict.elapsed = seen.elapsed;
        verdict.found = found(case, &seen);
        verdict.found.extend(crashes(case, &program, &library, &seen));
        Ok(Some(seen))
    }

    /// A definition that stands in the test file; files it names are looked up beside it.
    fn inline(&self, case: &Case, node: &sinew_source::Node) -> Result<Loaded, Failure> {
        let stem = self.file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let path = self.file.path.with_file_name(stem.trim_end_matches(".test").to_owned() + ".yaml");
        let document = Document { root: node.clone(), sources: self.file.sources.clone() };
        load::lower(
            &path,
            document,
            &load::Options { dialect: case.dialect.clone(), ..load::Options::default() },
        )
    }
}

/// All that does not hold of one run.
fn found(case: &Case, seen: &run::Seen) -> Vec<Mismatch> {
    let mut found: Vec<Mismatch> = seen
        .wrong
        .iter()
        .map(|line| Mismatch::new(case.span, "an agent has no stub", vec![line.clone()]))
        .collect();
    let refused = |line: &String| Mismatch::new(case.span, "a signal was refused", vec![line.clone()]);
    found.extend(seen.refused.iter().map(refused));
    if let Some(expect) = &case.expect {
        found.extend(check::check(expect, seen));
    } else {
        let line = "give the case an `expect` or an `invalid`; --update writes what was seen".to_owned();
        found.push(Mismatch::new(case.span, NOTHING, vec![line]));
    }
    found
}

/// A case with faults gives the same result as without.
fn crashes(
    case: &Case,
    program: &sinew_runtime::Program,
    library: &Arc<Library>,
    seen: &run::Seen,
) -> Vec<Mismatch> {
    let Some((_, place)) = case.crashes.first() else { return Vec::new() };
    let beyond = case.crashes.iter().filter(|(n, _)| *n > seen.facts).map(|(n, span)| {
        let line = format!("there is no fact {n}: the run has {}", seen.facts);
        Mismatch::new(*span, "the fault never happens", vec![line])
    });
    let mut found: Vec<Mismatch> = beyond.collect();
    let at: Vec<usize> = case.crashes.iter().map(|(n, _)| *n).collect();
    let again = run::run(case, program, library, &at);
    let differences = diff::differences(&seen.essence(), &again.essence(), false);
    if !differences.is_empty() {
        let what = "the result differs after a crash (expected: without)";
        found.push(Mismatch::new(*place, what, diff::lines(&differences)));
    }
    found
}

fn refused(
    want: &sinew_source::Node,
    loaded: Result<&Loaded, &Failure>,
    base: Option<Span>,
) -> Vec<Mismatch> {
    let diagnostics = match loaded {
        // Some dialects accept what cannot run and say so in a warning.
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
    check::refused(want, &diagnostics, base)
}

/// A failure that may be told to several cases.
fn copy(failure: &Failure) -> Failure {
    let mut copy = Failure::new(failure.exit, failure.code, failure.message.clone());
    copy.hint.clone_from(&failure.hint);
    copy.diagnostics.clone_from(&failure.diagnostics);
    copy
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

/// Writes the file anew, if nobody changed it meanwhile, and shows the difference.
fn rewrite(path: &Path, text: &str, edits: Vec<update::Edit>, output: &Output) -> Result<(), Failure> {
    let old = String::from_utf8(load::read(path)?).unwrap_or_default();
    let mark = if old.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    if old.trim_start_matches('\u{feff}') != text {
        let why = format!("{} was changed while its tests ran", path.display());
        return Err(Failure::new(Exit::Conflict, code::TEST_FILE_CHANGED_WHILE_ITS_TESTS_RAN.as_str(), why));
    }
    let new = update::apply(text, edits);
    std::fs::write(path, format!("{mark}{new}")).map_err(|error| {
        Failure::new(
            Exit::Failed,
            code::FILE_CANNOT_BE_WRITTEN.as_str(),
            format!("cannot write {}: {error}", path.display()),
        )
    })?;
    let name = path.display().to_string();
    let diff = similar::TextDiff::from_lines(text, &new);
    output.note_block(diff.unified_diff().context_radius(1).header(&name, &name).to_string().trim_end());
    Ok(())
}

/// Draws what was reached; with several workflows, `FILE` gets the name of each before its ending.
fn draw(coverage: &Coverage, out: &Path) -> Result<(), Failure> {
    let several = coverage.workflows().count() > 1;
    for (name, covered) in coverage.workflows() {
        let path = if several { numbered(out, name) } else { out.to_owned() };
        let svg = sinew_diagram::svg(&covered.drawing())
            .map_err(|error| Failure::new(Exit::Failed, error.code(), error.to_string()))?;
        std::fs::write(&path, svg).map_err(|error| {
            Failure::new(
                Exit::Failed,
                code::FILE_CANNOT_BE_WRITTEN.as_str(),
                format!("cannot write {}: {error}", path.display()),
            )
        })?;
    }
    Ok(())
}

/// `cover.svg` for workflow `a` is `cover.a.svg`.
fn numbered(out: &Path, name: &str) -> PathBuf {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
    out.with_extension(format!("{safe}.svg"))
}
