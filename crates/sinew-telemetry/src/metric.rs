//! Every metric with its description: the table that describes them to Prometheus, and that deploy/
//! is checked against.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sinew_protocol::subject::COUNTED_SUBJECT_KINDS;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Value that only increases.
    Counter,
    /// Value that increases and decreases.
    Gauge,
    /// Distribution of values in these buckets.
    Histogram(&'static [f64]),
}

/// Description of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricDescription {
    /// Name, with the unit as suffix if it has one.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Unit of the metric.
    pub unit: Unit,
    /// Labels, all with few values.
    #[allow(dead_code, reason = "what deploy/ is checked against")]
    pub labels: &'static [&'static str],
    /// Meaning of the metric.
    pub help: &'static str,
}

/// From a memory copy to far above a slow disk.
const SHORT_SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From a script to a person's answer.
const LONG_SECONDS: &[f64] =
    &[0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// From a single word to the largest contexts.
const TOKEN_BUCKETS: &[f64] =
    &[1.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
/// Powers of two.
const COUNT_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricDescription {
    MetricDescription { name, kind: MetricKind::Counter, unit: Unit::Count, labels, help }
}

const fn gauge(
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricDescription {
    MetricDescription { name, kind: MetricKind::Gauge, unit, labels, help }
}

const fn histogram(
    name: &'static str,
    unit: Unit,
    buckets: &'static [f64],
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricDescription {
    MetricDescription { name, kind: MetricKind::Histogram(buckets), unit, labels, help }
}

/// All metrics of Sinew. Metrics of the process itself (`process_…`) are those of every Prometheus
/// client.
pub const METRICS: &[MetricDescription] = &[
    gauge(
        "sinew_build_info",
        Unit::Count,
        &["version", "role"],
        "version and role of the process; the value is 1",
    ),
    counter("sinew_executions_started_total", &[], "started executions"),
    counter("sinew_executions_ended_total", &["status"], "ended executions: succeeded, failed or cancelled"),
    counter("sinew_executions_failed_total", &["code"], "executions that ended with a fault, by code"),
    histogram(
        "sinew_execution_seconds",
        Unit::Seconds,
        LONG_SECONDS,
        &["status", "workflow"],
        "time from the start of an execution to its end, by workflow; 200 names per process, then `other`",
    ),
    histogram(
        "sinew_activation_seconds",
        Unit::Seconds,
        LONG_SECONDS,
        &["kind", "type", "outcome"],
        "time from the start of an activation to its end, by kind and type of node; 200 types per process, then `other`",
    ),
    histogram(
        "sinew_task_schedule_to_start_seconds",
        Unit::Seconds,
        LONG_SECONDS,
        &["agent"],
        "time of tasks in queues before work on them started, by agent; 200 names per process, then `other`",
    ),
    histogram(
        "sinew_task_start_to_close_seconds",
        Unit::Seconds,
        LONG_SECONDS,
        &["agent"],
        "time of work on tasks as reported by agents, by agent; 200 names per process, then `other`",
    ),
    counter("sinew_activations_failed_total", &["code"], "failed activations, by code of the fault"),
    counter(
        "sinew_workflow_executions_total",
        &["workflow", "status"],
        "ended executions, by workflow; 200 names per process, then `other`",
    ),
    counter(
        "sinew_agent_attempts_total",
        &["agent", "outcome"],
        "ended attempts of agents, by agent; 200 names per process, then `other`",
    ),
    gauge(
        "sinew_executions_open",
        Unit::Count,
        &["shard"],
        "executions that have not ended, without held ones",
    ),
    gauge("sinew_executions_waiting", Unit::Count, &["shard"], "open executions that only wait for a person"),
    gauge(
        "sinew_oldest_execution_timestamp_seconds",
        Unit::Seconds,
        &["shard", "status"],
        "start of the oldest open execution, and of the oldest one that only waits for a person; 0 if there is none",
    ),
    counter("sinew_agent_tasks_total", &["agent", "outcome"], "tasks ended by agents of this process"),
    histogram(
        "sinew_agent_task_seconds",
        Unit::Seconds,
        LONG_SECONDS,
        &["agent"],
        "time from the arrival of a task at an agent to its end",
    ),
    gauge("sinew_agent_working", Unit::Count, &["agent"], "tasks in progress at an agent"),
    gauge(
        "sinew_agent_queued",
        Unit::Count,
        &["agent"],
        "pending tasks in an agent's queue, reported by one executor even if the agent is offline; 200 names, then `other`",
    ),
    gauge(
        "sinew_storage_used_ratio",
        Unit::Count,
        &["store"],
        "used part of the storage limit, of the account and of each stream that rejects messages when it is full; reported by one executor",
    ),
    gauge(
        "sinew_certificate_expiry_timestamp_seconds",
        Unit::Seconds,
        &["file"],
        "end of the validity of a gateway's TLS certificate, the earliest one of the file",
    ),
    counter(
        "sinew_gateway_requests_total",
        &["interface", "status"],
        "requests to a gateway, by interface (a2a, mcp, api, card, hook, console) and status class; 429 separately",
    ),
    histogram(
        "sinew_gateway_request_seconds",
        Unit::Seconds,
        SHORT_SECONDS,
        &["interface"],
        "time from the head of a request to its response, without streams",
    ),
    gauge("sinew_gateway_streams", Unit::Count, &[], "open event streams of a gateway"),
    counter(
        "sinew_gateway_pushes_total",
        &["outcome"],
        "delivery attempts of push notifications: delivered, failed (retried) or refused (not retried)",
    ),
    counter(
        "sinew_bridge_messages_total",
        &["outcome"],
        "messages to external agents: sent, found (accepted, but the response was lost) or unknown (cannot be determined)",
    ),
    counter("sinew_model_calls_total", &["outcome"], "calls of language models, by outcome"),
    histogram(
        "gen_ai_client_operation_duration_seconds",
        Unit::Seconds,
        LONG_SECONDS,
        &["provider"],
        "time from the call of a language model to the end of its answer",
    ),
    histogram(
        "gen_ai_client_token_usage",
        Unit::Count,
        TOKEN_BUCKETS,
        &["kind"],
        "tokens of a call of a language model: prompt or answer",
    ),
    counter(
        "sinew_model_cost_micro_usd_total",
        &["agent", "model"],
        "price of model calls in millionths of a USD, where agent files name prices; 200 agents and models per process, then `other`",
    ),
    counter(
        "sinew_turns_replayed_total",
        &[],
        "turns that a conversation read from its log instead of calling the model",
    ),
    counter("sinew_tool_calls_total", &["kind", "outcome"], "calls of tools by language models"),
    counter("sinew_conversions_total", &[], "calls of conversion functions of connections"),
    counter(
        "sinew_conversions_failed_total",
        &[],
        "failed calls of conversion functions, whose values are passed on unconverted",
    ),
    counter("sinew_schema_violations_total", &[], "inputs and outputs of nodes that violate their specs"),
    counter(
        "sinew_attempts_ended_total",
        &["outcome"],
        "ended attempts: succeeded, error, failure, invalid, cancelled or timeout",
    ),
    counter("sinew_tokens_total", &["direction"], "tokens reported by agents: input or output"),
    counter("sinew_tasks_total", &[], "tasks sent to agents and sub-workflows"),
    counter("sinew_results_late_total", &[], "results that arrived too late to count"),
    counter(
        "sinew_executions_set_aside_total",
        &[],
        "held executions: no executor processes them until they are resumed",
    ),
    counter("sinew_results_foreign_total", &[], "results from agents that were not called"),
    counter("sinew_quarantined_total", &["code"], "quarantined messages"),
    counter("sinew_quarantine_dropped_total", &[], "oldest messages removed because the quarantine was full"),
    counter("sinew_quarantine_lost_total", &[], "messages that could not be quarantined"),
    counter(
        "sinew_streams_behind_total",
        &["stream"],
        "streams that were read again from their first message",
    ),
    counter(
        "sinew_undeliverable_total",
        &["kind"],
        "messages that could not be parsed, by kind of subject; quarantined or skipped",
    ),
    counter(
        "sinew_connections_screened_total",
        &[],
        "connections replaced by one that checks every message, because messages broke them",
    ),
    counter("sinew_commits_total", &[], "commits stored in journals"),
    histogram("sinew_commit_entries", Unit::Count, COUNT_BUCKETS, &[], "entries of executions per commit"),
    histogram(
        "sinew_round_seconds",
        Unit::Seconds,
        SHORT_SECONDS,
        &[],
        "time from reading messages to storing their commit",
    ),
    gauge("sinew_shards_owned", Unit::Count, &[], "shards owned by this executor"),
    counter("sinew_takeovers_total", &[], "shards opened by this executor"),
    counter("sinew_refolds_total", &[], "evicted open executions that were reloaded for new input"),
    counter(
        "sinew_fenced_total",
        &[],
        "commits rejected because another executor had written to the journal",
    ),
    counter("sinew_spans_lost_total", &[], "spans that no collector accepted"),
];

/// Renders the metrics for Prometheus.
pub(super) type MetricsPage = Arc<dyn Fn() -> String + Send + Sync>;

/// Starts the collection of metrics; further calls return the same page.
pub(super) fn install(role: &'static str) -> MetricsPage {
    static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
    let handle = INSTALLED.get_or_init(|| {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another recorder collects the metrics of this process; /metrics is empty");
        }
        describe();
        if ROLES_WITH_EXECUTOR.contains(&role) {
            start_counters();
        }
        handle
    });
    metrics::gauge!("sinew_build_info", "version" => env!("CARGO_PKG_VERSION"), "role" => role).set(1.0);
    let process = metrics_process::Collector::default();
    process.describe();
    let handle = handle.clone();
    Arc::new(move || {
        process.collect();
        handle.render()
    })
}

/// Limits memory without scrapes: samples are sorted into their buckets regularly.
pub(super) async fn upkeep(page: MetricsPage) {
    let mut turn = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        turn.tick().await;
        let _ = page();
    }
}

const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Only histograms without buckets are rejected, and Sinew has none.
fn builder() -> PrometheusBuilder {
    let described = METRICS.iter().try_fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        MetricKind::Histogram(buckets) => {
            builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
        }
        MetricKind::Counter | MetricKind::Gauge => Ok(builder),
    });
    described.unwrap_or_default()
}

fn describe() {
    for metric in METRICS {
        match metric.kind {
            MetricKind::Counter => metrics::describe_counter!(metric.name, metric.unit, metric.help),
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.help),
            MetricKind::Histogram(_) => metrics::describe_histogram!(metric.name, metric.unit, metric.help),
        }
    }
}

/// Roles of processes that run an executor, whose activity the counters count.
const ROLES_WITH_EXECUTOR: [&str; 2] = ["executor", "dev"];
/// Counters of executors with one label, and all its values. Labels of the same name have different
/// values in each counter.
const LABEL_VALUES: [(&str, &[&str]); 5] = [
    ("sinew_executions_ended_total", &["succeeded", "failed", "cancelled"]),
    ("sinew_attempts_ended_total", &["succeeded", "error", "failure", "invalid", "cancelled", "timeout"]),
    ("sinew_tokens_total", &["input", "output"]),
    ("sinew_streams_behind_total", &["COMMANDS", "RESULTS"]),
    ("sinew_undeliverable_total", &COUNTED_SUBJECT_KINDS),
];

/// Sets counters to 0. A rate includes the first increase of a counter only if the counter existed
/// before. Counters without known label values start with their first value, and gateways and
/// bridges start their own.
fn start_counters() {
    for metric in METRICS.iter().filter(|metric| metric.kind == MetricKind::Counter) {
        match metric.labels {
            [] => metrics::counter!(metric.name).increment(0),
            [label] => {
                let values =
                    LABEL_VALUES.iter().find(|(name, _)| *name == metric.name).map(|(_, values)| *values);
                for value in values.unwrap_or_default() {
                    metrics::counter!(metric.name, *label => *value).increment(0);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_there_before_anything_is_counted() {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, start_counters);
        let page = handle.render();
        for line in [
            "sinew_takeovers_total 0",
            "sinew_executions_ended_total{status=\"failed\"} 0",
            "sinew_attempts_ended_total{outcome=\"timeout\"} 0",
            "sinew_quarantine_lost_total 0",
            "sinew_streams_behind_total{stream=\"COMMANDS\"} 0",
            "sinew_undeliverable_total{kind=\"command\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no line `{line}` in\n{page}");
        }
        for metric in
            METRICS.iter().filter(|metric| metric.kind == MetricKind::Counter && metric.labels.is_empty())
        {
            assert!(page.contains(metric.name), "{}", metric.name);
        }
        for other in ["sinew_gateway_pushes_total", "sinew_bridge_messages_total", "sinew_model_calls_total"]
        {
            assert!(!page.contains(other), "executors do not know the values of {other}:\n{page}");
        }
        for (name, _) in LABEL_VALUES {
            let metric = METRICS.iter().find(|metric| metric.name == name);
            assert!(metric.is_some_and(|metric| metric.labels.len() == 1), "{name}");
        }
    }

    #[test]
    fn what_is_described_can_be_read_by_prometheus() {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe();
            metrics::counter!("sinew_executions_ended_total", "status" => "failed").increment(2);
            metrics::gauge!("sinew_shards_owned").set(4.0);
            metrics::histogram!("sinew_round_seconds").record(0.004);
        });
        let page = handle.render();
        for line in [
            "# TYPE sinew_executions_ended_total counter",
            "sinew_executions_ended_total{status=\"failed\"} 2",
            "# HELP sinew_shards_owned shards owned by this executor",
            "sinew_shards_owned 4",
            "# TYPE sinew_round_seconds histogram",
            "sinew_round_seconds_bucket{le=\"0.005\"} 1",
            "sinew_round_seconds_count 1",
        ] {
            assert!(page.lines().any(|found| found == line), "no line `{line}` in\n{page}");
        }
    }

    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            let MetricDescription { name, kind, unit, labels, help } = metric;
            // Metrics of models have the names of OpenTelemetry.
            let is_named = name.starts_with("sinew_") || name.starts_with("gen_ai_client_");
            assert!(is_named && !help.is_empty() && !help.ends_with('.'), "{name}");
            assert_eq!(*kind == MetricKind::Counter, name.ends_with("_total"), "{name}");
            assert_eq!(*unit == Unit::Seconds, name.ends_with("_seconds"), "{name}");
            assert!(
                labels.iter().all(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
                "{name}"
            );
            if let MetricKind::Histogram(buckets) = kind {
                assert!(buckets.len() > 3 && buckets.is_sorted(), "{name}");
            }
            assert_eq!(
                METRICS.iter().filter(|other| other.name == *name).count(),
                1,
                "{name} is there twice"
            );
        }
    }
}
