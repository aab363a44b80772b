//! Reports test results: lines for people, JSON and JUnit for programs.

use std::fmt::Write as _;

use sinew_documents::trial::{CaseFailure, CaseResult, CaseResults};
use sinew_documents::words;
use sinew_engine::Time;
use sinew_operations::failure::Failure;
use sinew_source::{Sources, Span};

use crate::coverage::Coverage;
use crate::expectation::Mismatch;

/// Verdict of a case.
#[derive(Debug)]
pub struct CaseVerdict {
    /// Path of the test file.
    pub(crate) file: String,
    /// Texts of the file, for spans.
    pub(crate) sources: Sources,
    /// Span of the case.
    pub(crate) span: Span,
    /// Name of the case.
    pub(crate) name: String,
    /// Failed expectations.
    pub(crate) found: Vec<Mismatch>,
    /// Duration in virtual milliseconds.
    pub(crate) elapsed: Time,
    /// Whether `--update` fixed the case.
    pub updated: bool,
}

impl CaseVerdict {
    /// Returns whether all expectations are met.
    pub fn passed(&self) -> bool {
        self.found.is_empty()
    }

    fn place(&self, span: Span) -> String {
        let file = self.sources.get(span.file).map_or(self.file.as_str(), |file| file.name.as_str());
        if span.line == 0 { file.to_owned() } else { format!("{file}:{}:{}", span.line, span.column) }
    }

    /// Formats the verdict: one line, and one more for each failed expectation.
    pub fn text(&self, color: bool, ascii: bool) -> String {
        let paint = |code: &str, text: &str| {
            if color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
        };
        let (code, icon, word) = match (self.passed(), self.updated, ascii) {
            (true, _, false) => ("32", "✓", "passed"),
            (true, _, true) => ("32", "+", "passed"),
            (false, true, false) => ("33", "✎", "updated"),
            (false, true, true) => ("33", "~", "updated"),
            (false, false, false) => ("31", "✗", "failed"),
            (false, false, true) => ("31", "x", "failed"),
        };
        let time =
            if self.elapsed > 0 { format!("  {}", words::duration(self.elapsed)) } else { String::new() };
        let mut text = format!(
            "{} {:<7}  {}{time}\n",
            paint(code, icon),
            paint(code, word),
            words::name(&format!("{}  {}", self.file, self.name))
        );
        for mismatch in &self.found {
            let _ = writeln!(
                text,
                "    {}: {}",
                words::name(&self.place(mismatch.span)),
                paint("1", &words::name(&mismatch.what))
            );
            for line in mismatch.lines.iter().flat_map(|line| line.lines()) {
                let _ = writeln!(text, "      {}", words::name(line));
            }
        }
        text
    }

    /// Returns the verdict as a document.
    fn result(&self) -> CaseResult {
        let found = self.found.iter().map(|mismatch| CaseFailure {
            at: self.place(mismatch.span),
            expectation: mismatch.what.clone(),
            differences: mismatch.lines.clone(),
        });
        CaseResult {
            file: self.file.clone(),
            line: self.span.line,
            column: self.span.column,
            name: self.name.clone(),
            passed: self.passed(),
            updated: self.updated,
            elapsed_ms: self.elapsed,
            failures: found.collect(),
        }
    }
}

/// Report of all cases.
#[derive(Debug, Default)]
pub struct CaseReport {
    /// Number of test files.
    pub files: usize,
    /// Verdicts of cases in run order.
    pub verdicts: Vec<CaseVerdict>,
    /// Failures of unreadable files.
    pub broken: Vec<Failure>,
    /// Coverage of the tested workflows.
    pub coverage: Coverage,
}

impl CaseReport {
    /// Returns whether all cases, and at least one, passed or were updated.
    pub fn is_good(&self) -> bool {
        let good = self.verdicts.iter().all(|verdict| verdict.passed() || verdict.updated);
        good && self.broken.is_empty() && !self.verdicts.is_empty()
    }

    /// Returns the report as a document.
    pub fn results(&self, with_coverage: bool) -> CaseResults {
        let passed = self.verdicts.iter().filter(|verdict| verdict.passed()).count();
        CaseResults {
            cases: self.verdicts.iter().map(CaseVerdict::result).collect(),
            passed,
            failed: self.verdicts.len() - passed,
            broken_files: self.broken.len(),
            coverage: with_coverage.then(|| self.coverage.json()),
            problems: None,
        }
    }

    /// Formats the last line of a report for people.
    pub fn summary(&self) -> String {
        let (verdicts, files, broken) = (&self.verdicts, self.files, self.broken.len());
        let failed = verdicts.iter().filter(|verdict| !verdict.passed()).count();
        let updated = verdicts.iter().filter(|verdict| verdict.updated).count();
        let count = |n: usize| format!("{n} file{}", if n == 1 { "" } else { "s" });
        let mut line = format!("{} passed, {} failed", verdicts.len() - failed, failed - updated);
        if updated > 0 {
            let _ = write!(line, ", {updated} updated");
        }
        let _ = write!(line, " in {}", count(files));
        if broken > 0 {
            let _ = write!(line, "; {} could not be read", count(broken));
        }
        line
    }

    /// Returns JUnit XML for build servers. Times are virtual.
    pub fn junit(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let failed = |of: &[&CaseVerdict]| of.iter().filter(|verdict| !verdict.passed()).count();
        let all: Vec<&CaseVerdict> = self.verdicts.iter().collect();
        let _ = writeln!(xml, "<testsuites tests=\"{}\" failures=\"{}\">", all.len(), failed(&all));
        let mut rest = all.as_slice();
        while let Some(first) = rest.first() {
            let (suite, others) = rest.split_at(rest.iter().take_while(|v| v.file == first.file).count());
            rest = others;
            let _ = writeln!(
                xml,
                "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\">",
                escape(&first.file),
                suite.len(),
                failed(suite)
            );
            for verdict in suite {
                let _ = write!(
                    xml,
                    "    <testcase name=\"{}\" classname=\"{}\" file=\"{}\" line=\"{}\" time=\"{}.{:03}\"",
                    escape(&verdict.name),
                    escape(&verdict.file),
                    escape(&verdict.file),
                    verdict.span.line,
                    verdict.elapsed / 1000,
                    verdict.elapsed % 1000
                );
                if verdict.passed() {
                    xml.push_str("/>\n");
                    continue;
                }
                xml.push_str(">\n");
                for mismatch in &verdict.found {
                    let _ = writeln!(
                        xml,
                        "      <failure message=\"{}\">{}: {}</failure>",
                        escape(&mismatch.what),
                        escape(&verdict.place(mismatch.span)),
                        escape(&mismatch.lines.join("\n"))
                    );
                }
                xml.push_str("    </testcase>\n");
            }
            xml.push_str("  </testsuite>\n");
        }
        xml.push_str("</testsuites>\n");
        xml
    }
}

/// Escapes a text for XML; replaces characters that XML cannot represent.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
