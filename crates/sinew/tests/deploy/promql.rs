//! The part of PromQL that the alerts use, evaluated over two scrapes: what a rule says that Prometheus would see.
#![expect(
    clippy::expect_used,
    clippy::float_cmp,
    reason = "a rule that cannot be evaluated fails its test; PromQL compares exactly"
)]

use std::collections::BTreeMap;

use promql_parser::label::Matchers;
use promql_parser::parser::{Expr, LabelModifier, VectorSelector};

/// Labels of a time series, with its name as `__name__`.
pub(super) type SeriesLabels = BTreeMap<String, String>;

/// One value of one time series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: SeriesLabels,
    pub(super) value: f64,
}

/// Scrapes of the same targets at the begin and the end of a window.
#[derive(Default)]
pub(super) struct ScrapeWindow {
    pub(super) first: Vec<Sample>,
    pub(super) last: Vec<Sample>,
    pub(super) seconds: f64,
}

/// A result: a number, or samples.
enum Evaluated {
    Scalar(f64),
    Vector(Vec<Sample>),
}

/// Reads a page of metrics; each sample gets the labels of its target.
pub(super) fn read_page(page: &str, job: &str, instance: &str) -> Vec<Sample> {
    let target =
        [("job", job), ("instance", instance)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut samples = vec![Sample {
        labels: target.iter().cloned().chain([("__name__".to_owned(), "up".to_owned())]).collect(),
        value: 1.0,
    }];
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let mut all: SeriesLabels = target.iter().cloned().collect();
        all.insert("__name__".to_owned(), name.to_owned());
        let labels = labels.trim_end_matches('}');
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            all.insert(name.to_owned(), value.trim_end_matches('"').to_owned());
        }
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        samples.push(Sample { labels: all, value });
    }
    samples
}

impl ScrapeWindow {
    /// Samples for which an alert fires.
    pub(super) fn firing(&self, expression: &Expr) -> Vec<Sample> {
        match self.evaluate(expression) {
            Evaluated::Vector(samples) => samples,
            Evaluated::Scalar(_) => panic!("an alert is not a number"),
        }
    }

    fn vector(&self, expression: &Expr) -> Vec<Sample> {
        match self.evaluate(expression) {
            Evaluated::Vector(samples) => samples,
            Evaluated::Scalar(value) => vec![Sample { labels: SeriesLabels::new(), value }],
        }
    }

    fn evaluate(&self, expression: &Expr) -> Evaluated {
        match expression {
            Expr::NumberLiteral(number) => Evaluated::Scalar(number.val),
            Expr::Paren(inner) => self.evaluate(&inner.expr),
            Expr::VectorSelector(selector) => Evaluated::Vector(selected(&self.last, selector)),
            Expr::Aggregate(aggregate) => {
                let together = match aggregate.op.to_string().as_str() {
                    "sum" => |all: f64, one: f64| all + one,
                    "max" => f64::max,
                    other => panic!("{other} is not evaluated here"),
                };
                let samples = self.vector(&aggregate.expr);
                Evaluated::Vector(aggregated(samples, aggregate.modifier.as_ref(), together))
            }
            // The window begins at 0.
            Expr::Call(call) if call.func.name == "time" => Evaluated::Scalar(self.seconds),
            Expr::Call(call) => {
                let args: Vec<&Expr> = call.args.args.iter().map(|arg| &**arg).collect();
                Evaluated::Vector(match (call.func.name, args.as_slice()) {
                    ("increase", [range]) => self.change(range, grown),
                    ("delta", [range]) => self.change(range, |then, now| now - then),
                    ("rate", [range]) => {
                        let mut all = self.change(range, grown);
                        for one in &mut all {
                            one.value /= self.seconds;
                        }
                        all
                    }
                    ("absent", [inner]) => {
                        if self.vector(inner).is_empty() {
                            vec![Sample { labels: SeriesLabels::new(), value: 1.0 }]
                        } else {
                            Vec::new()
                        }
                    }
                    ("histogram_quantile", [quantile, buckets]) => {
                        let Evaluated::Scalar(quantile) = self.evaluate(quantile) else {
                            panic!("no quantile")
                        };
                        histogram_quantile(quantile, self.vector(buckets))
                    }
                    (name, _) => panic!("{name} is not evaluated here"),
                })
            }
            Expr::Binary(binary) => {
                combined(&binary.op.to_string(), self.evaluate(&binary.lhs), self.evaluate(&binary.rhs))
            }
            other => panic!("{other:?} is not evaluated here"),
        }
    }

    /// Changes within the window. A series that was not there at its begin has none, as in Prometheus.
    fn change(&self, range: &Expr, changed: impl Fn(f64, f64) -> f64) -> Vec<Sample> {
        let Expr::MatrixSelector(range) = range else { panic!("no range: {range:?}") };
        let before = selected(&self.first, &range.vs);
        let change = |now: Sample| {
            let then = before.iter().find(|then| then.labels == now.labels)?.value;
            Some(Sample { labels: without_name(now.labels), value: changed(then, now.value) })
        };
        selected(&self.last, &range.vs).into_iter().filter_map(change).collect()
    }
}

/// The increase of a counter: a process that began anew counts from 0.
fn grown(then: f64, now: f64) -> f64 {
    if now < then { now } else { now - then }
}

fn without_name(mut labels: SeriesLabels) -> SeriesLabels {
    labels.remove("__name__");
    labels
}

fn selected(samples: &[Sample], selector: &VectorSelector) -> Vec<Sample> {
    let Matchers { matchers, or_matchers } = &selector.matchers;
    assert!(or_matchers.is_empty() && selector.offset.is_none() && selector.at.is_none());
    let label = |sample: &Sample, name: &str| sample.labels.get(name).cloned().unwrap_or_default();
    let fits = |sample: &&Sample| {
        selector.name.as_ref().is_none_or(|name| label(sample, "__name__") == *name)
            && matchers.iter().all(|matcher| matcher.is_match(&label(sample, &matcher.name)))
    };
    samples.iter().filter(fits).cloned().collect()
}

fn aggregated(
    samples: Vec<Sample>,
    modifier: Option<&LabelModifier>,
    together: fn(f64, f64) -> f64,
) -> Vec<Sample> {
    let mut all: BTreeMap<SeriesLabels, f64> = BTreeMap::new();
    for sample in samples {
        let mut labels = without_name(sample.labels);
        match modifier {
            None => labels.clear(),
            Some(LabelModifier::Include(kept)) => labels.retain(|name, _| kept.labels.contains(name)),
            Some(LabelModifier::Exclude(left)) => labels.retain(|name, _| !left.labels.contains(name)),
        }
        all.entry(labels).and_modify(|all| *all = together(*all, sample.value)).or_insert(sample.value);
    }
    all.into_iter().map(|(labels, value)| Sample { labels, value }).collect()
}

fn combined(operator: &str, left: Evaluated, right: Evaluated) -> Evaluated {
    let computed = |left: f64, right: f64| match operator {
        "*" => Some(left * right),
        "/" => Some(left / right),
        "+" => Some(left + right),
        "-" => Some(left - right),
        _ => None,
    };
    // A comparison keeps the left value where it holds.
    let compared = |left: f64, right: f64| {
        let holds = match operator {
            ">" => left > right,
            "<" => left < right,
            ">=" => left >= right,
            "<=" => left <= right,
            "==" => left == right,
            _ => panic!("{operator} is not evaluated here"),
        };
        holds.then_some(left)
    };
    let either = |left: f64, right: f64| computed(left, right).or_else(|| compared(left, right));
    match (left, right) {
        (Evaluated::Scalar(left), Evaluated::Scalar(right)) => {
            Evaluated::Scalar(computed(left, right).expect("arithmetic of numbers"))
        }
        (Evaluated::Vector(samples), Evaluated::Scalar(right)) => Evaluated::Vector(
            samples
                .into_iter()
                .filter_map(|one| Some(Sample { value: either(one.value, right)?, ..one }))
                .collect(),
        ),
        (Evaluated::Scalar(_), Evaluated::Vector(_)) => panic!("the number stands on the right side here"),
        (Evaluated::Vector(mut left), Evaluated::Vector(right)) if operator == "or" => {
            let missing = |one: &Sample| {
                !left
                    .iter()
                    .any(|known| without_name(known.labels.clone()) == without_name(one.labels.clone()))
            };
            let more: Vec<Sample> = right.into_iter().filter(missing).collect();
            left.extend(more);
            Evaluated::Vector(left)
        }
        (Evaluated::Vector(mut left), Evaluated::Vector(right)) if matches!(operator, "and" | "unless") => {
            let is_there = |one: &Sample| {
                let labels = without_name(one.labels.clone());
                right.iter().any(|other| without_name(other.labels.clone()) == labels)
            };
            left.retain(|one| is_there(one) == (operator == "and"));
            Evaluated::Vector(left)
        }
        (Evaluated::Vector(left), Evaluated::Vector(right)) => Evaluated::Vector(
            left.into_iter()
                .filter_map(|one| {
                    let labels = without_name(one.labels);
                    let other = right.iter().find(|other| without_name(other.labels.clone()) == labels)?;
                    Some(Sample { value: either(one.value, other.value)?, labels })
                })
                .collect(),
        ),
    }
}

/// The quantile of each histogram, by linear interpolation within its bucket.
fn histogram_quantile(quantile: f64, buckets: Vec<Sample>) -> Vec<Sample> {
    let mut histograms: BTreeMap<SeriesLabels, Vec<(f64, f64)>> = BTreeMap::new();
    for mut bucket in buckets {
        let bound = bucket.labels.remove("le").expect("a bucket has a bound");
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") };
        histograms.entry(without_name(bucket.labels)).or_default().push((bound, bucket.value));
    }
    let of = |(labels, mut buckets): (SeriesLabels, Vec<(f64, f64)>)| {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total = buckets.last()?.1;
        let rank = quantile * total;
        let at = buckets.iter().position(|(_, count)| *count >= rank).filter(|_| total > 0.0)?;
        let (from, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
        let (to, count) = buckets[at];
        let value =
            if to.is_infinite() { from } else { from + (to - from) * (rank - below) / (count - below) };
        Some(Sample { labels, value })
    };
    histograms.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use promql_parser::parser::parse;

    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_prometheus() {
        let first = "a_total{code=\"x\"} 1\na_total{code=\"y\"} 5\nb 2\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"2\"} 0\nh_bucket{le=\"+Inf\"} 0\n";
        let last = "a_total{code=\"x\"} 4\na_total{code=\"y\"} 2\na_total{code=\"z\"} 9\nb 3\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"2\"} 10\nh_bucket{le=\"+Inf\"} 10\n";
        let window = ScrapeWindow {
            first: read_page(first, "j", "i"),
            last: read_page(last, "j", "i"),
            seconds: 10.0,
        };
        for (expression, wanted) in [
            ("sum(increase(a_total[5m]))", &[5.0][..]),
            ("sum by (code) (increase(a_total[5m]))", &[3.0, 2.0]),
            ("sum(rate(a_total{code=~\"x|y\"}[5m])) / sum(rate(a_total[5m])) > 0.5", &[1.0]),
            ("b > 3 or b < 4", &[3.0]),
            ("b > 2 * 2", &[]),
            ("absent(up{job=\"j\"} == 1)", &[]),
            ("absent(up{job=\"k\"} == 1)", &[1.0]),
            ("histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))", &[1.8]),
        ] {
            let found = window.firing(&parse(expression).expect(expression));
            let values: Vec<f64> = found.iter().map(|one| (one.value * 1e9).round() / 1e9).collect();
            assert_eq!(values, wanted, "{expression}");
        }
    }
}
