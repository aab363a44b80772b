//! Findings in a file, with their positions: one type for all checks; other modules render it.

use crate::{Sources, Span};

/// Severity of a finding: an error makes the file unusable, a warning does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not do what its author intended.
    Warning,
}

impl Severity {
    /// Returns `error` or `warning`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Operator code, `SINEW-NNNN`; `sinew explain` has a page for each.
    pub code: &'static str,
    /// Code of the dialect, such as `UNBOUNDED_CYCLE`.
    pub sub_code: Option<String>,
    /// Dialect that `sub_code` belongs to, such as `sweny`.
    pub dialect: Option<String>,
    /// One line, lower case, no full stop, no values that could be secret.
    pub message: String,
    /// Position of the finding; `None` if it has no single position.
    pub span: Option<Span>,
    /// Advice on the fix.
    pub hint: Option<String>,
    /// Related positions, each with a short explanation.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    /// Creates an error without a position.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message.into())
    }

    /// Creates a warning without a position.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message.into())
    }

    fn new(severity: Severity, code: &'static str, message: String) -> Self {
        Self {
            severity,
            code,
            sub_code: None,
            dialect: None,
            message,
            span: None,
            hint: None,
            related: Vec::new(),
        }
    }

    /// Sets the position. A span without a file (line 0) counts as no position.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span = (span.line > 0).then_some(span);
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the code of the dialect.
    #[must_use]
    pub fn sub_code(mut self, sub_code: impl Into<String>) -> Self {
        self.sub_code = Some(sub_code.into());
        self
    }

    /// Sets the dialect of the sub code.
    #[must_use]
    pub fn dialect(mut self, dialect: impl Into<String>) -> Self {
        self.dialect = Some(dialect.into());
        self
    }

    /// Adds a related position.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }
}

/// All findings about one document, with the files to show them in.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// Files that the spans refer to.
    pub sources: Sources,
    /// Findings, in the order of insertion until [`Diagnostics::sort`].
    pub items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Creates an empty list of findings for these files.
    pub fn new(sources: Sources) -> Self {
        Self { sources, items: Vec::new() }
    }

    /// Adds a finding.
    pub fn push(&mut self, item: Diagnostic) {
        self.items.push(item);
    }

    /// Returns whether any finding is an error.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// Returns the number of errors.
    pub fn errors(&self) -> usize {
        self.items.iter().filter(|item| item.severity == Severity::Error).count()
    }

    /// Returns the number of warnings.
    pub fn warnings(&self) -> usize {
        self.items.len() - self.errors()
    }

    /// Returns whether there are no findings.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Sorts by position (findings without one first), then errors before warnings, then code. The
    /// sort is stable; exact duplicates are dropped.
    pub fn sort(&mut self) {
        self.items.sort_by_key(|item| {
            let place = item.span.map(|span| (span.file, span.line, span.column));
            (place, item.severity, item.code)
        });
        self.items.dedup();
    }

    /// Sets the dialect of every finding that has a sub code and no dialect.
    pub fn set_dialect(&mut self, dialect: &str) {
        for item in self.items.iter_mut().filter(|item| item.sub_code.is_some()) {
            item.dialect.get_or_insert_with(|| dialect.to_owned());
        }
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, items: I) {
        self.items.extend(items);
    }
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(crate::render_text(self, false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}
