//! Spans as a collector receives them.

use std::sync::Mutex;

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// Returns the spans that `work` exports.
fn spans(work: impl FnOnce()) -> Vec<SpanData> {
    let kept = Kept::default();
    let exporter = NamedSpanExporter { inner: kept.clone(), failing: AtomicBool::new(false) };
    let traces = TraceExporter::exporting(exporter, Resource::builder_empty().build());
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::with_default(subscriber, work);
    traces.provider.force_flush().unwrap();
    let mut spans = kept.0.lock().unwrap().clone();
    spans.sort_by(|a, b| a.name.cmp(&b.name));
    spans
}

fn ids(span: &SpanData) -> (String, String) {
    (span.span_context.trace_id().to_string(), span.parent_span_id.to_string())
}

#[test]
fn a_field_leads_into_a_trace_wherever_the_span_is_opened() {
    let all = spans(|| {
        let outer = tracing::info_span!(target: "sinew_mesh", "outer").entered();
        let parent = Some(PARENT.to_owned());
        let task = tracing::info_span!(target: "sinew_agent", "task", agent = "a", trace_parent = parent);
        let inner = task.in_scope(|| tracing::info_span!(target: "sinew_agent", "inner"));
        drop((inner, task, outer));
        // The thread has no trace again.
        drop(tracing::info_span!(target: "sinew_agent", "unrelated"));
    });
    let [task, inner, outer, unrelated] = &all[..] else { panic!("{all:?}") };
    assert_eq!(task.name, "invoke_agent a");
    assert_eq!(ids(task), (TRACE.to_owned(), SPAN.to_owned()));
    assert_eq!(inner.parent_span_id, task.span_context.span_id());
    for free in [outer, unrelated] {
        assert_ne!(free.span_context.trace_id().to_string(), TRACE, "{free:?}");
        assert_eq!(free.parent_span_id, SpanId::INVALID);
    }
}

#[test]
fn a_malformed_trace_begins_a_new_one() {
    for bad in ["", "00", "00-0-0-01", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "\u{0}ß"] {
        let all = spans(|| drop(tracing::info_span!(target: "sinew_agent", "task", trace_parent = bad)));
        assert_eq!((all.len(), all[0].parent_span_id), (1, SpanId::INVALID), "{bad}");
    }
}

#[test]
fn headers_carry_the_trace_from_span_to_span() {
    let mut headers = Vec::new();
    let all = spans(|| {
        let client = tracing::info_span!(target: "sinew", "start", workflow = "w");
        client.in_scope(|| inject_trace(&mut |name, value| headers.push((name.to_owned(), value))));
        let find = |name: &str| headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone());
        let other = tracing::info_span!(target: "sinew", "take");
        continue_trace(&other, &find);
    });
    let [start, take] = &all[..] else { panic!("{all:?}") };
    assert_eq!((start.name.as_ref(), take.name.as_ref()), ("invoke_workflow w", "sinew take"));
    assert_eq!(take.span_context.trace_id(), start.span_context.trace_id());
    assert_eq!(take.parent_span_id, start.span_context.span_id());
    assert_eq!(headers.len(), 1, "an empty trace state is not a header: {headers:?}");
}

#[test]
fn without_a_span_no_header_is_written() {
    inject_trace(&mut |name, value| panic!("{name}: {value}"));
}

#[test]
fn what_has_ended_is_a_span_with_its_own_id_and_times() {
    let all = spans(|| {
        tracing::debug!(
            target: FINISHED, span = "execution", traceparent = PARENT, id = "00000000000000aa", start = 1_000_u64,
            end = 3_500_u64, workflow = "w", error = "SINEW-6010", reason = "in somebody's words",
        );
        for (parent, id) in
            [(UNSAMPLED, "00000000000000aa"), (PARENT, "0000000000000000"), ("x", "1"), (PARENT, "zz")]
        {
            tracing::debug!(target: FINISHED, span = "x", traceparent = parent, id, start = 1_u64, end = 2_u64);
        }
        tracing::debug!(target: FINISHED, span = "no times", traceparent = PARENT, id = "00000000000000aa");
    });
    let [span] = &all[..] else { panic!("{all:?}") };
    assert_eq!(span.name, "invoke_workflow w");
    assert_eq!(ids(span), (TRACE.to_owned(), SPAN.to_owned()));
    assert_eq!(span.span_context.span_id().to_string(), "00000000000000aa");
    assert_eq!(span.end_time.duration_since(span.start_time).unwrap(), Duration::from_millis(2_500));
    assert!(matches!(span.status, Status::Error { .. }));
    assert!(!format!("{:?}", span.attributes).contains("somebody"), "{:?}", span.attributes);
}

#[test]
fn what_names_itself_as_parent_begins_its_trace() {
    let all = spans(|| {
        tracing::debug!(
            target: FINISHED,
            span = "start",
            traceparent = PARENT,
            id = SPAN,
            start = 1_u64,
            end = 2_u64
        );
    });
    assert_eq!((all.len(), all[0].parent_span_id), (1, SpanId::INVALID), "{all:?}");
    assert_eq!(all[0].span_context.span_id().to_string(), SPAN);
}

#[test]
fn only_our_spans_leave_and_no_log_line_with_them() {
    let all = spans(|| {
        let ours = tracing::info_span!(target: "sinew_mesh", "append", shard = 3).entered();
        tracing::info!(target: "sinew_mesh", "a line of the log");
        drop(tracing::info_span!(target: "hyper", "theirs"));
        drop(tracing::debug_span!(target: "sinew_mesh", "detail"));
        drop(ours);
    });
    let [span] = &all[..] else { panic!("{all:?}") };
    assert_eq!(span.name, "sinew append");
    assert!(span.events.events.is_empty(), "{:?}", span.events);
}

#[test]
fn the_environment_says_who_this_is_first() {
    let name = |variables: &[(&str, &str)]| {
        let find =
            |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        let said = resource("executor", Some("e1"), &find);
        said.get(&opentelemetry::Key::new("service.name")).map(|value| value.to_string())
    };
    assert_eq!(name(&[]).as_deref(), Some("sinew-executor"));
    for variables in
        [[("OTEL_SERVICE_NAME", "mine")], [("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=mine")]]
    {
        assert_ne!(name(&variables).as_deref(), Some("sinew-executor"), "{variables:?}");
    }
}
