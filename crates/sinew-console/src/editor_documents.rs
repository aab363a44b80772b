//! API documents for the workflow editor; only the members that pages show.

use serde::Deserialize;
use serde_json::Value;
use sinew_documents::execution::Fault;
use sinew_documents::execution_status::ExecutionStatus;

use crate::documents::FindingDocument;

/// The result of a conversion.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConversionDocument {
    #[serde(default)]
    pub(crate) outcome: String,
    #[serde(default)]
    pub(crate) value: Value,
    pub(crate) error: Option<ConversionErrorDocument>,
}

/// Why a conversion failed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConversionErrorDocument {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) place: ConversionSpanDocument,
}

/// Position in a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConversionSpanDocument {
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

/// Results of test cases.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CasesDocument {
    #[serde(default)]
    pub(crate) cases: Vec<CaseDocument>,
    #[serde(default)]
    pub(crate) passed: usize,
    #[serde(default)]
    pub(crate) failed: usize,
    /// Findings in the test file itself.
    #[serde(default)]
    pub(crate) problems: Vec<FindingDocument>,
}

/// The result of a case.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CaseDocument {
    pub(crate) name: String,
    pub(crate) passed: bool,
    #[serde(default)]
    pub(crate) elapsed_ms: u64,
    #[serde(default)]
    pub(crate) failures: Vec<CaseFailureDocument>,
}

/// An expectation that was not met.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CaseFailureDocument {
    #[serde(default)]
    pub(crate) at: String,
    #[serde(default)]
    pub(crate) expectation: String,
    #[serde(default)]
    pub(crate) differences: Vec<String>,
}

/// A dry run.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DryRunDocument {
    pub(crate) workflow: String,
    #[serde(with = "sinew_documents::execution_status")]
    pub(crate) status: ExecutionStatus,
    #[serde(default)]
    pub(crate) would_ask: Vec<WouldAskDocument>,
    pub(crate) error: Option<Fault>,
}

/// A task that a dry run would send.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WouldAskDocument {
    pub(crate) node: String,
    #[serde(default)]
    pub(crate) agent: Value,
    #[serde(default)]
    pub(crate) input: Value,
}

/// Files of a deployed workflow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SourceDocument {
    #[serde(default)]
    pub(crate) files: Vec<SourceFileDocument>,
    #[serde(default)]
    pub(crate) diagnostics: Vec<FindingDocument>,
}

/// A file of a deployed workflow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SourceFileDocument {
    pub(crate) name: String,
    pub(crate) text: String,
}
