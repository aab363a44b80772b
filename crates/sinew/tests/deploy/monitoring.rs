//! Metrics in the code, in the table, in alerts, on the dashboard and in the README: all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use promql_parser::parser::{self, Expr};
use promql_parser::util::{ExprVisitor, walk_expr};
use regex::Regex;
use serde_json::Value;

use super::{deploy, read, root, yaml};
use sinew_telemetry::metric::{METRICS, MetricDescription, MetricKind};

/// Metrics that every client of Prometheus has, or that Prometheus makes itself.
const FOREIGN: [&str; 5] = [
    "up",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
];
/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["job", "instance"];

/// Rust files below a folder, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// Returns the metrics that the code emits: kind and labels of each name, with the place.
fn emitted() -> BTreeMap<String, BTreeSet<(String, Vec<String>)>> {
    let call =
        Regex::new(r"(?s)\b(counter|gauge|histogram)!\(\s*(.*?)\)\s*\.(?:increment|set|record)\(").unwrap();
    let label = Regex::new(r#""([a-z_]+)"\s*=>"#).unwrap();
    let mut found: BTreeMap<String, BTreeSet<(String, Vec<String>)>> = BTreeMap::new();
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let mut files = Vec::new();
        sources(&folder.unwrap().path().join("src"), &mut files);
        for file in files {
            let text = read(&file);
            let product = text.split("#[cfg(test)]").next().unwrap();
            for call in call.captures_iter(product) {
                let arguments = &call[2];
                let name = arguments.strip_prefix('"').and_then(|rest| rest.split('"').next());
                // The table itself starts all of its counters.
                if arguments.starts_with("metric.name") && file.ends_with("sinew-telemetry/src/metric.rs") {
                    continue;
                }
                let name =
                    name.unwrap_or_else(|| panic!("{}: a metric without a plain name", file.display()));
                let labels = label.captures_iter(arguments).map(|label| label[1].to_owned()).collect();
                found.entry(name.to_owned()).or_default().insert((call[1].to_owned(), labels));
            }
        }
    }
    found
}

#[test]
fn the_table_is_what_the_code_emits() {
    let emitted = emitted();
    let named: BTreeSet<&str> = emitted.keys().map(String::as_str).collect();
    let described: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(named, described, "left: emitted, right: described");
    for MetricDescription { name, kind, labels, .. } in METRICS {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(emitted[*name], BTreeSet::from([(kind.to_owned(), labels)]), "{name}");
    }
}

/// The metric that a time series of Prometheus belongs to.
fn metric(series: &str) -> Option<&'static MetricDescription> {
    METRICS.iter().find(|metric| match metric.kind {
        MetricKind::Histogram(_) => {
            series.strip_prefix(metric.name).is_some_and(|end| matches!(end, "_bucket" | "_sum" | "_count"))
        }
        MetricKind::Counter | MetricKind::Gauge => metric.name == series,
    })
}

/// Everything an expression names.
#[derive(Default)]
struct Names {
    series: BTreeSet<String>,
    labels: BTreeSet<String>,
    wrong: Vec<String>,
}

impl ExprVisitor for Names {
    type Error = String;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, String> {
        let selector = match expression {
            Expr::VectorSelector(selector) => selector,
            Expr::MatrixSelector(matrix) => &matrix.vs,
            Expr::Aggregate(aggregate) => {
                let labels = aggregate.modifier.as_ref().map(|modifier| match modifier {
                    parser::LabelModifier::Include(labels) | parser::LabelModifier::Exclude(labels) => {
                        labels.labels.clone()
                    }
                });
                self.labels.extend(labels.unwrap_or_default());
                return Ok(true);
            }
            _ => return Ok(true),
        };
        let name = selector.name.clone().unwrap_or_default();
        let known: Vec<&str> = match metric(&name) {
            Some(metric) => metric.labels.iter().copied().chain(ADDED).collect(),
            None if FOREIGN.contains(&name.as_str()) => ADDED.to_vec(),
            None => {
                self.wrong.push(format!("there is no metric '{name}'"));
                return Ok(true);
            }
        };
        for matcher in &selector.matchers.matchers {
            if !known.contains(&matcher.name.as_str()) {
                self.wrong.push(format!("'{name}' has no label '{}'", matcher.name));
            }
        }
        self.series.insert(name);
        Ok(true)
    }
}

/// Returns the defects of an expression.
fn complaints(expression: &str) -> Vec<String> {
    let parsed = match parser::parse(&expression.replace("$__rate_interval", "5m")) {
        Ok(parsed) => parsed,
        Err(error) => return vec![error],
    };
    let mut names = Names::default();
    walk_expr(&mut names, &parsed).unwrap();
    let known: Vec<&str> = names
        .series
        .iter()
        .filter_map(|series| metric(series))
        .flat_map(|metric| metric.labels.iter().copied())
        .chain(ADDED)
        .chain(["le"])
        .collect();
    let unknown = names.labels.iter().filter(|label| !known.contains(&label.as_str()));
    names.wrong.extend(unknown.map(|label| format!("nothing here has a label '{label}'")));
    if names.series.is_empty() && names.wrong.is_empty() {
        names.wrong.push("it names no metric".to_owned());
    }
    names.wrong
}

#[test]
fn a_wrong_expression_is_noticed() {
    for (expression, complaint) in [
        ("sum(rate(sinew_tasks_totall[5m]))", "there is no metric 'sinew_tasks_totall'"),
        ("sum(rate(sinew_round_seconds[5m]))", "there is no metric 'sinew_round_seconds'"),
        ("sinew_shards_owned{shard=\"1\"}", "'sinew_shards_owned' has no label 'shard'"),
        ("sum by (stauts) (sinew_executions_ended_total)", "nothing here has a label 'stauts'"),
        ("vector(1) > 0", "it names no metric"),
    ] {
        assert_eq!(complaints(expression), [complaint], "{expression}");
    }
    assert!(!complaints("sum(rate(sinew_tasks_total[5m])").is_empty(), "a missing bracket");
    assert!(
        complaints("histogram_quantile(0.9, sum by (le) (rate(sinew_round_seconds_bucket[5m])))").is_empty()
    );
}

#[test]
fn alerts_are_about_metrics_there_are() {
    let files =
        ["alerts", "objectives"].map(|name| yaml(&deploy(&format!("prometheus/{name}.yaml"))).remove(0));
    let mut names = BTreeSet::new();
    for group in files.iter().flat_map(|file| file["groups"].as_array().unwrap()) {
        for rule in group["rules"].as_array().unwrap() {
            let Some(name) = rule["alert"].as_str() else {
                let wrong = complaints(rule["expr"].as_str().unwrap());
                assert!(wrong.is_empty(), "{}: {wrong:?}", rule["record"]);
                continue;
            };
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            for key in rule.as_object().unwrap().keys() {
                assert!(
                    ["alert", "expr", "for", "labels", "annotations"].contains(&key.as_str()),
                    "{name}: {key}"
                );
            }
            let wrong = complaints(rule["expr"].as_str().unwrap());
            assert!(wrong.is_empty(), "{name}: {wrong:?}");
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
            for said in ["summary", "action"] {
                assert!(rule["annotations"][said].is_string(), "{name} has no {said}");
            }
        }
    }
    // The README says which alert stands for which threshold.
    let readme = read(&deploy("README.md"));
    let spoken = Regex::new("`(Sinew[A-Z][A-Za-z]+)`").unwrap();
    let spoken: BTreeSet<&str> =
        spoken.captures_iter(&readme).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(spoken.len() >= 5, "{spoken:?}");
    for name in spoken {
        assert!(names.contains(name), "the README speaks of {name}, which is not there");
    }
}

#[test]
fn the_dashboard_shows_metrics_there_are() {
    let dashboard: Value = serde_json::from_str(&read(&deploy("grafana/sinew.json"))).unwrap();
    let (mut ids, mut shown) = (BTreeSet::new(), String::new());
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is there twice");
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} is too wide");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let wrong = complaints(expression);
            assert!(wrong.is_empty(), "{title}: {wrong:?}");
            shown.push_str(expression);
        }
    }
    assert!(ids.len() > 15);
    for metric in METRICS
        .iter()
        .filter(|metric| !["sinew_spans_lost_total", "sinew_executions_failed_total"].contains(&metric.name))
    {
        assert!(shown.contains(metric.name), "nobody sees {}", metric.name);
    }
}

#[test]
fn the_readme_explains_every_metric() {
    let readme = read(&deploy("README.md"));
    for metric in METRICS {
        assert!(readme.contains(&format!("`{}`", metric.name)), "{} is not explained", metric.name);
        for label in metric.labels {
            assert!(readme.contains(label), "{} of {} is not explained", label, metric.name);
        }
    }
    let spoken = Regex::new(r"sinew_[a-z_]+").unwrap();
    for name in spoken.find_iter(&readme).map(|found| found.as_str()) {
        let known = metric(name).is_some() || METRICS.iter().any(|metric| metric.name == name);
        assert!(
            known || name.starts_with("sinew_executor"),
            "the README speaks of {name}, which is not there"
        );
    }
    // Metrics that the specification names, in its own words.
    for asked in [
        "node_execution.duration_ms",
        "workflow_execution.tokens_used",
        "node_execution.credits_consumed",
        "> 5 %",
        "> 10 %",
    ] {
        assert!(readme.contains(asked), "{asked} is not mapped");
    }
}
