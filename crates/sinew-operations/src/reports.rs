//! Reports over closed executions: times of nodes, and usage of models. Bounded, and with a statement of
//! how far they look.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use sinew_documents::agent::Percentiles;
use sinew_documents::report::{CostReport, CostRow, NodeReport, NodeTimes, ReportCoverage};
use sinew_engine::Time;
use sinew_inspection::model_usage::reported_usage;
use sinew_inspection::record::Record;
use sinew_inspection::task_times::task_times;
use sinew_mesh::history::HistoryFilter;
use sinew_protocol::usage::{ModelTotals, TaskUsage};

use crate::failure::Failure;
use crate::mesh_operator::MeshOperator;
use crate::traffic_figures::nearest_rank;

/// Maximum number of executions that a report reads, newest first.
const MAX_EXECUTIONS: usize = 5_000;
/// Maximum number of groups; what belongs to further ones counts as [`OTHER`].
const MAX_GROUPS: usize = 1_000;
/// Maximum number of times of a group that are kept for percentiles.
const MAX_TIMES: usize = 10_000;
/// Number of records fetched concurrently.
const AT_ONCE: usize = 16;
/// Name of the group of everything beyond [`MAX_GROUPS`].
const OTHER: &str = "other";
/// Name of the group of executions without the label.
const NO_LABEL: &str = "-";

/// By what a report groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportGroup {
    /// Workflow.
    Workflow,
    /// Node of a workflow.
    Node,
    /// Agent.
    Agent,
    /// Model, as the provider names it. For costs.
    Model,
    /// Value of the label with this name.
    Label(String),
}

impl ReportGroup {
    /// Parses `workflow`, `node`, `agent`, `model` or `label:NAME`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "workflow" => Ok(Self::Workflow),
            "node" => Ok(Self::Node),
            "agent" => Ok(Self::Agent),
            "model" => Ok(Self::Model),
            other => match other.strip_prefix("label:").filter(|name| !name.is_empty()) {
                Some(name) => Ok(Self::Label(name.to_owned())),
                None => Err(Failure::usage(format!(
                    "by: expected workflow, node, agent, model or label:NAME, found '{}'",
                    sinew_documents::words::one_line(other, 60)
                ))),
            },
        }
    }

    /// Returns the name of the group of a part of an execution.
    fn name(&self, record: &Record, node: &str, agent: &str, model: &str) -> String {
        match self {
            Self::Workflow => record.plan().name.clone(),
            Self::Node => format!("{}/{node}", record.plan().name),
            Self::Agent => agent.to_owned(),
            Self::Model => model.to_owned(),
            Self::Label(name) => {
                record.about.labels.get(name).cloned().unwrap_or_else(|| NO_LABEL.to_owned())
            }
        }
    }
}

/// Which executions a report covers.
pub struct ReportScope<'a> {
    /// Executions that ended since this time, milliseconds since 1970 UTC.
    pub since: Time,
    /// By what the report groups.
    pub by: ReportGroup,
    /// Whether the caller may see an execution, by its workflow and caller.
    pub opens: &'a (dyn Fn(&str, &str) -> bool + Sync),
}

/// Reports the times of nodes.
///
/// # Errors
/// Fails if the mesh does not respond, or the report groups by model.
pub async fn report_nodes(remote: &MeshOperator, scope: &ReportScope<'_>) -> Result<NodeReport, Failure> {
    if scope.by == ReportGroup::Model {
        return Err(Failure::usage("by: times of nodes are not grouped by model"));
    }
    let mut groups: BTreeMap<String, GroupTimes> = BTreeMap::new();
    let coverage = read_records(remote, scope, |record| {
        for task in task_times(record) {
            let name = scope.by.name(record, &task.node, &task.agent, "");
            group(&mut groups, name).add(task.worked_ms, task.queued_ms, task.failed);
        }
    })
    .await?;
    let mut rows: Vec<NodeTimes> = groups.into_iter().map(|(name, times)| times.row(name)).collect();
    rows.sort_by_key(|row| Reverse(row.working_ms + row.queued_ms));
    Ok(NodeReport { coverage, rows })
}

/// Reports the usage of models. Each call counts once, in the execution whose node called the agent.
///
/// # Errors
/// Fails if the mesh does not respond.
pub async fn report_costs(remote: &MeshOperator, scope: &ReportScope<'_>) -> Result<CostReport, Failure> {
    let mut groups: BTreeMap<String, (usize, ModelTotals)> = BTreeMap::new();
    let mut total = ModelTotals::default();
    let coverage = read_records(remote, scope, |record| {
        let mut used: BTreeMap<String, ModelTotals> = BTreeMap::new();
        for one in reported_usage(record) {
            // Called workflows and agents have executions of their own.
            let Some(own) = TaskUsage::of(&one.usage).map(|usage| usage.own) else { continue };
            if !own.is_empty() {
                let name = scope.by.name(record, &one.node, &one.agent, &models(&one.usage));
                used.entry(name).or_default().add(own);
            }
        }
        for (name, used) in used {
            let (executions, sum) = group(&mut groups, name);
            *executions += 1;
            sum.add(used);
            total.add(used);
        }
    })
    .await?;
    let row = |(name, (executions, used))| CostRow { name, executions, used };
    let mut rows: Vec<CostRow> = groups.into_iter().map(row).collect();
    let price = |row: &CostRow| row.used.cost_usd.unwrap_or_default();
    rows.sort_by(|a, b| price(b).total_cmp(&price(a)).then(b.used.input_tokens.cmp(&a.used.input_tokens)));
    Ok(CostReport { coverage, total, rows })
}

/// Returns the group with this name, or the one for everything beyond the limit.
fn group<T: Default>(groups: &mut BTreeMap<String, T>, name: String) -> &mut T {
    let is_known = groups.len() < MAX_GROUPS || groups.contains_key(&name);
    groups.entry(if is_known { name } else { OTHER.to_owned() }).or_default()
}

/// Returns the models of a usage, by name.
fn models(usage: &serde_json::Value) -> String {
    let all = usage.get("models").and_then(|all| all.as_array()).into_iter().flatten();
    let mut names: Vec<&str> = all.filter_map(|name| name.as_str()).collect();
    if names.is_empty() {
        names.extend(usage.get("model").and_then(|name| name.as_str()));
    }
    names.sort_unstable();
    if names.is_empty() { "unknown".to_owned() } else { names.join(", ") }
}

/// Visits the records of the newest closed executions in a scope.
async fn read_records(
    remote: &MeshOperator,
    scope: &ReportScope<'_>,
    mut visit: impl FnMut(&Record),
) -> Result<ReportCoverage, Failure> {
    let filter = HistoryFilter { since: Some(scope.since), ..HistoryFilter::default() };
    let mut ended = remote.mesh().history().list(&filter, MAX_EXECUTIONS + 1).await?;
    ended.sort_by_key(|closed| Reverse(closed.ended));
    let is_whole = ended.len() <= MAX_EXECUTIONS;
    ended.truncate(MAX_EXECUTIONS);
    let from = ended.last().map(|closed| closed.ended.into());
    ended.retain(|closed| !closed.is_dry_run && (scope.opens)(&closed.workflow, &closed.caller));
    let mut coverage = ReportCoverage { since: scope.since.into(), from, executions: 0, is_whole };
    let records =
        futures_util::stream::iter(ended).map(|closed| async move { remote.record(&closed.execution).await });
    let mut records = Box::pin(records.buffered(AT_ONCE));
    while let Some(record) = records.next().await {
        match record {
            Ok(record) => {
                coverage.executions += 1;
                visit(&record);
            }
            Err(failure) if failure.is_mesh_silent() => return Err(failure),
            // Its record has expired in the meantime, or is of a workflow that cannot be read.
            Err(_) => {}
        }
    }
    Ok(coverage)
}

/// Times of a group of tasks, while they are collected.
#[derive(Default)]
struct GroupTimes {
    tasks: usize,
    failed: usize,
    working_ms: u64,
    queued_ms: u64,
    worked: Vec<u64>,
    queued: Vec<u64>,
}

impl GroupTimes {
    fn add(&mut self, worked: u64, queued: u64, failed: bool) {
        self.tasks += 1;
        self.failed += usize::from(failed);
        self.working_ms = self.working_ms.saturating_add(worked);
        self.queued_ms = self.queued_ms.saturating_add(queued);
        if self.worked.len() < MAX_TIMES {
            self.worked.push(worked);
            self.queued.push(queued);
        }
    }

    fn row(mut self, name: String) -> NodeTimes {
        let percentiles = |times: &mut Vec<u64>| Percentiles {
            p50: nearest_rank(times, 50).unwrap_or_default(),
            p95: nearest_rank(times, 95).unwrap_or_default(),
        };
        NodeTimes {
            name,
            tasks: self.tasks,
            failed: self.failed,
            working_ms: self.working_ms,
            queued_ms: self.queued_ms,
            work_ms: percentiles(&mut self.worked),
            queue_ms: percentiles(&mut self.queued),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_named_and_bounded() {
        for (text, expected) in [
            ("node", Some(ReportGroup::Node)),
            ("model", Some(ReportGroup::Model)),
            ("label:customer", Some(ReportGroup::Label("customer".to_owned()))),
            ("label:", None),
            ("day", None),
        ] {
            assert_eq!(ReportGroup::parse(text).ok(), expected, "{text}");
        }
        let mut groups: BTreeMap<String, usize> = BTreeMap::new();
        for n in 0..2 * MAX_GROUPS {
            *group(&mut groups, n.to_string()) += 1;
        }
        assert_eq!((groups.len(), groups[OTHER]), (MAX_GROUPS + 1, MAX_GROUPS));
        assert_eq!(models(&json!({"models": ["b", "a"], "model": "b"})), "a, b");
        assert_eq!(models(&json!({"model": "b"})), "b");
        assert_eq!(models(&json!({})), "unknown");
    }

    #[test]
    fn times_of_a_group_are_summed() {
        let mut times = GroupTimes::default();
        for ms in 1..=20 {
            times.add(ms, 2 * ms, ms == 20);
        }
        let row = times.row("refund/pay".to_owned());
        assert_eq!((row.tasks, row.failed, row.working_ms, row.queued_ms), (20, 1, 210, 420));
        assert_eq!((row.work_ms.p50, row.work_ms.p95, row.queue_ms.p95), (10, 19, 38));
    }
}
