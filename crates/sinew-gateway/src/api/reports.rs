//! Reports over closed executions, and the audit of the mesh.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_documents::audit::AuditReport;
use sinew_documents::csv;
use sinew_documents::report::{CostReport, NodeReport};
use sinew_operations::audit::AuditFilter;
use sinew_operations::reports::{ReportGroup, ReportScope, report_costs, report_nodes};
use sinew_runtime::local;

use super::api_call::{ApiCall, answer, row_limit};
use super::route::{ApiRoute, get};
use crate::http_error::HttpProblem;

/// Default start of a report: a week ago.
const DEFAULT_AGE_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/reports/nodes",
            "ReportNodes",
            "Report work and queue times of nodes, the slowest first",
            nodes,
        )
        .query::<ReportQuery>()
        .returns::<NodeReport>()
        .or_media(&["text/csv"]),
        get("/reports/cost", "ReportCost", "Report turns, tokens and price of language models", cost)
            .query::<ReportQuery>()
            .returns::<CostReport>()
            .or_media(&["text/csv"]),
        get("/audit", "Audit", "List who changed what on the mesh, why and from where", audit)
            .query::<AuditQuery>()
            .returns::<AuditReport>(),
    ]
}

/// Default number of changes.
const AUDIT_ROWS: usize = 200;
/// Maximum number of changes.
const MAX_AUDIT_ROWS: usize = 10_000;

/// Query of the audit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only changes at or after this time, in milliseconds since 1970 UTC. Default: a week ago.
    since: Option<u64>,
    /// Only changes of this caller.
    who: Option<String>,
    /// Only changes with this text in what was done (`cancel`, `approve`, `deploy`, `key`), or changes of
    /// this execution, workflow, key owner or trigger.
    what: Option<String>,
    /// Maximum number of changes, at most 10,000. The newest are returned. Default: 200.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

async fn audit(call: ApiCall) -> Result<Response, HttpProblem> {
    // The audit covers all callers, keys and workflows of the mesh.
    call.check_whole()?;
    call.check_every_caller()?;
    let AuditQuery { since, who, what, limit } = call.query()?;
    let since = since.unwrap_or_else(|| local::now().saturating_sub(DEFAULT_AGE_MS));
    let limit = row_limit(limit, AUDIT_ROWS, MAX_AUDIT_ROWS)?;
    answer(&call.operator.audit(&AuditFilter { since, who, what, limit }).await?)
}

/// Query of a report.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportQuery {
    /// Only executions that ended at or after this time, in milliseconds since 1970 UTC. Default: a week
    /// ago.
    since: Option<u64>,
    /// `workflow`, `node`, `agent`, `model` (only for costs) or `label:NAME`. Default: `node` for times,
    /// `workflow` for costs.
    by: Option<String>,
    /// `json` (default), or `csv` with one line per group.
    #[serde(default)]
    format: ReportFormat,
}

/// Format of a report.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ReportFormat {
    #[default]
    Json,
    Csv,
}

async fn nodes(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ReportQuery = call.query()?;
    let opens = |workflow: &str, caller: &str| call.operations.opens(workflow, caller);
    let report = report_nodes(&call.operator, &query.scope("node", &opens)?).await?;
    query.respond(&report)
}

async fn cost(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: ReportQuery = call.query()?;
    let opens = |workflow: &str, caller: &str| call.operations.opens(workflow, caller);
    let report = report_costs(&call.operator, &query.scope("workflow", &opens)?).await?;
    query.respond(&report)
}

impl ReportQuery {
    fn scope<'a>(
        &self,
        usual: &str,
        opens: &'a (dyn Fn(&str, &str) -> bool + Sync),
    ) -> Result<ReportScope<'a>, HttpProblem> {
        Ok(ReportScope {
            since: self.since.unwrap_or_else(|| local::now().saturating_sub(DEFAULT_AGE_MS)),
            by: ReportGroup::parse(self.by.as_deref().filter(|by| !by.is_empty()).unwrap_or(usual))?,
            opens,
        })
    }

    fn respond<T: Serialize>(&self, report: &T) -> Result<Response, HttpProblem> {
        if self.format == ReportFormat::Json {
            return answer(report);
        }
        let text = csv::table(&serde_json::to_value(report).unwrap_or_default()).unwrap_or_default();
        let headers = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
            (header::CONTENT_DISPOSITION, "attachment; filename=\"report.csv\""),
        ];
        Ok((headers, text).into_response())
    }
}
