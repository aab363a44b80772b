//! Findings in a file, with their positions: one type for all checks, rendered elsewhere.

use crate::{Sources, Span};

/// How bad it is: an error stops the file from being used, a warning does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not do what was meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
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
    /// The operator code, `SINEW-NNNN`; `sinew explain` has a page for each.
    pub code: &'static str,
    /// The dialect's own code, such as `UNBOUNDED_CYCLE`.
    pub sub_code: Option<String>,
    /// The dialect that `sub_code` belongs to, such as `sweny`.
    pub dialect: Option<String>,
    /// One line, lower case, no full stop, no values that could be secret.
    pub message: String,
    /// Where; `None` where no single place is to blame.
    pub span: Option<Span>,
    /// Advice on how to mend it.
    pub hint: Option<String>,
    /// Other places that explain this one, each with a short text.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    /// An error without a place yet.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message.into())
    }

    /// A warning without a place yet.
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

    /// Sets the place. A span without a file (line 0) counts as no place.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span = (span.line > 0).then_some(span);
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the dialect's own code.
    #[must_use]
    pub fn sub_code(mut self, sub_code: impl Into<String>) -> Self {
        self.sub_code = Some(sub_code.into());
        self
    }

    /// Sets the dialect that the sub code belongs to.
    #[must_use]
    pub fn dialect(mut self, dialect: impl Into<String>) -> Self {
        self.dialect = Some(dialect.into());
        self
    }

    /// Adds a place that explains this one.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }
}

/// All findings about one document, with the texts to show them in.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// The files that the spans point into.
    pub sources: Sources,
    /// The findings, in the order they were made until [`Diagnostics::sort`].
    pub items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// No findings yet about these files.
    pub fn new(sources: Sources) -> Self {
        Self { sources, items: Vec::new() }
    }

    /// Adds one finding.
    pub fn push(&mut self, item: Diagnostic) {
        self.items.push(item);
    }

    /// Whether any finding is an error.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// How many findings are errors.
    pub fn errors(&self) -> usize {
        self.items.iter().filter(|item| item.severity == Severity::Error).count()
    }

    /// How many findings are warnings.
    pub fn warnings(&self) -> usize {
        self.items.len() - self.errors()
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Orders by place (findings without one first), then errors before warnings, then code.
    /// Findings that agree in all of that keep their order; exact repetitions are dropped.
    pub fn sort(&mut self) {
        self.items.sort_by_key(|item| {
            let place = item.span.map(|span| (span.file, span.line, span.column));
            (place, item.severity, item.code)
        });
        self.items.dedup();
    }

    /// Names the dialect on every finding that has a sub code and no dialect yet.
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
