//! Exports the spans of this process to an OpenTelemetry collector, and connects them to those of
//! other processes.
//!
//! The W3C `traceparent` of messages connects the spans of one request. A trace is continued in
//! three ways:
//!
//! - a span with a field `trace_parent` (or `traceparent`) continues the trace of that field,
//!   regardless of its parent span, so libraries do not depend on OpenTelemetry;
//! - [`continue_trace`] does the same with the headers of a message;
//! - a `tracing` event with target [`FINISHED`] is a span that has already ended, with its own id
//!   and times. Spans that outlive a process, such as an execution, are reported this way from the
//!   journal after their end.
//!
//! [`inject_trace`] writes the trace into the headers of the next message.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceState, TracerProvider as _,
};
use opentelemetry::{Context, ContextGuard, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SdkTracerProvider, SpanData, SpanEvents, SpanExporter, SpanLinks, SpanProcessor,
};
use sinew_protocol::env;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer;
use tracing_subscriber::registry::LookupSpan;

use crate::collector::TraceCollector;
use crate::{TelemetryError, name};

/// Target of events for spans that have ended. Fields: `span` (its name in the code), `traceparent`
/// (its parent; itself if it is the first of its trace), `id` (its own, 16 hex digits), `start` and
/// `end` (milliseconds since 1970), and any of the fields that `name` knows; `error` marks it as
/// failed.
pub(crate) const FINISHED: &str = "sinew::span";
const SCOPE: &str = "sinew";
const TRACE_PARENT: [&str; 2] = ["trace_parent", "traceparent"];

thread_local! {
    /// Trace that the span being opened on this thread continues.
    static CONTINUED: RefCell<Option<ContextGuard>> = const { RefCell::new(None) };
}

/// Exporter of this process.
#[derive(Debug)]
pub(super) struct TraceExporter {
    provider: SdkTracerProvider,
    ended: SpanQueue,
}

impl TraceExporter {
    /// Creates an exporter to this collector.
    pub(super) fn new(
        role: &str,
        id: Option<&str>,
        collector: &TraceCollector,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, TelemetryError> {
        let exporter = NamedSpanExporter { inner: collector.exporter()?, failing: AtomicBool::new(false) };
        Ok(Self::exporting(exporter, resource(role, id, environment)))
    }

    fn exporting(exporter: impl SpanExporter + 'static, resource: Resource) -> Self {
        let mut batches = BatchSpanProcessor::builder(exporter).build();
        batches.set_resource(&resource);
        let ended = SpanQueue(Arc::new(batches));
        let provider =
            SdkTracerProvider::builder().with_span_processor(ended.clone()).with_resource(resource).build();
        Self { provider, ended }
    }

    /// Returns the layers that export Sinew's spans. Events within spans are only logged.
    pub(super) fn layer<S>(&self) -> Vec<Box<dyn Layer<S> + Send + Sync>>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let spans = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SCOPE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        let ours = filter_fn(|meta| {
            meta.is_span() && *meta.level() <= Level::INFO && meta.target().starts_with("sinew")
        });
        let ended = EndedSpanLayer { to: self.ended.clone() };
        vec![
            EnterRemoteTrace.and_then(spans).and_then(LeaveRemoteTrace).with_filter(ours).boxed(),
            ended.with_filter(filter_fn(|meta| meta.is_event() && meta.target() == FINISHED)).boxed(),
        ]
    }

    /// Exports the remaining spans.
    pub(super) async fn stop(self, within: Duration) {
        let provider = self.provider;
        // Blocks until the collector has responded or the timeout expires.
        let _ = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(within)).await;
    }
}

/// Returns the attributes of this process. Attributes of the environment take precedence.
fn resource(role: &str, id: Option<&str>, environment: &dyn Fn(&str) -> Option<String>) -> Resource {
    let mut said = vec![KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    said.extend(id.map(|id| KeyValue::new("service.instance.id", id.to_owned())));
    let attributes = environment(env::OTEL_RESOURCE_ATTRIBUTES).unwrap_or_default();
    if environment(env::OTEL_SERVICE_NAME).is_none() && !attributes.contains("service.name=") {
        said.push(KeyValue::new("service.name", format!("sinew-{role}")));
    }
    Resource::builder().with_attributes(said).build()
}

/// Makes `span` continue the trace of a message; `header` returns the message's headers by name.
#[allow(dead_code, reason = "for whoever receives requests with headers, such as a gateway; tests use it")]
pub fn continue_trace(span: &tracing::Span, header: &dyn Fn(&str) -> Option<String>) {
    let context = remote(header);
    if context.span().span_context().is_valid() {
        // Fails without an exporter, when there is no trace to continue.
        let _ = span.set_parent(context);
    }
}

/// Writes the trace of the current span into a message's headers, if a trace is recorded.
#[allow(dead_code, reason = "for whoever sends messages of its own within a span; tests use it")]
pub fn inject_trace(set: &mut dyn FnMut(&str, String)) {
    struct Headers<'a>(&'a mut dyn FnMut(&str, String));
    impl Injector for Headers<'_> {
        fn set(&mut self, name: &str, value: String) {
            // An empty trace state contains no information.
            if !value.is_empty() {
                (self.0)(name, value);
            }
        }
    }
    let context = tracing::Span::current().context();
    TraceContextPropagator::new().inject_context(&context, &mut Headers(set));
}

/// Returns the context in the headers; an empty one if they are malformed.
fn remote(header: &dyn Fn(&str) -> Option<String>) -> Context {
    struct Headers(Vec<(&'static str, String)>);
    impl Extractor for Headers {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        }

        fn keys(&self) -> Vec<&str> {
            self.0.iter().map(|(name, _)| *name).collect()
        }
    }
    let known = ["traceparent", "tracestate"];
    let headers = known.iter().filter_map(|name| Some((*name, header(name)?))).collect();
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers))
}

/// Runs before the OpenTelemetry layer: opens a span in the trace of its field.
struct EnterRemoteTrace;

impl<S: Subscriber> Layer<S> for EnterRemoteTrace {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: layer::Context<'_, S>) {
        let mut fields = SpanFields::default();
        attributes.record(&mut fields);
        if let Some(parent) = TRACE_PARENT.iter().find_map(|name| fields.text(name)) {
            let context = remote(&|name| (name == "traceparent").then(|| parent.to_owned()));
            if context.span().span_context().is_valid() {
                CONTINUED.set(Some(context.attach()));
            }
        }
    }
}

/// Runs after the OpenTelemetry layer: restores the thread's context.
struct LeaveRemoteTrace;

impl<S: Subscriber> Layer<S> for LeaveRemoteTrace {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: layer::Context<'_, S>) {
        CONTINUED.take();
    }
}

/// Converts events about ended spans to spans.
struct EndedSpanLayer {
    to: SpanQueue,
}

impl<S: Subscriber> Layer<S> for EndedSpanLayer {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        let mut fields = SpanFields::default();
        event.record(&mut fields);
        if let Some(span) = ended(fields) {
            self.to.0.on_end(span);
        }
    }
}

fn ended(fields: SpanFields) -> Option<SpanData> {
    let parent = fields.text("traceparent")?.to_owned();
    let parent = remote(&|name| (name == "traceparent").then(|| parent.clone()));
    let parent = parent.span().span_context().clone();
    if !parent.is_sampled() {
        return None;
    }
    let id = SpanId::from_hex(fields.text("id")?).ok().filter(|id| *id != SpanId::INVALID)?;
    let time = |name: &str| Some(SystemTime::UNIX_EPOCH + Duration::from_millis(fields.number(name)?));
    let (start_time, end_time) = (time("start")?, time("end")?);
    let first = id == parent.span_id();
    let status = fields.text("error").map_or(Status::Unset, |error| Status::error(error.to_owned()));
    Some(SpanData {
        span_context: SpanContext::new(parent.trace_id(), id, parent.trace_flags(), false, TraceState::NONE),
        parent_span_id: if first { SpanId::INVALID } else { parent.span_id() },
        parent_span_is_remote: !first,
        span_kind: SpanKind::Internal,
        name: fields.text("span")?.to_owned().into(),
        start_time,
        end_time: end_time.max(start_time),
        attributes: fields.0,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: InstrumentationScope::builder(SCOPE).build(),
    })
}

/// Fields of a span or an event.
#[derive(Debug, Default)]
struct SpanFields(Vec<KeyValue>);

impl SpanFields {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|field| field.key.as_str() == name).and_then(|field| match &field.value {
            opentelemetry::Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|field| field.key.as_str() == name).and_then(|field| match field.value {
            opentelemetry::Value::I64(number) => u64::try_from(number).ok(),
            _ => None,
        })
    }
}

impl Visit for SpanFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push(KeyValue::new(field.name(), value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push(KeyValue::new(field.name(), value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push(KeyValue::new(field.name(), i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push(KeyValue::new(field.name(), format!("{value:?}")));
    }
}

/// Single queue to the exporter, for live and for ended spans.
#[derive(Clone, Debug)]
struct SpanQueue(Arc<BatchSpanProcessor>);

impl SpanProcessor for SpanQueue {
    fn on_start(&self, span: &mut opentelemetry_sdk::trace::Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.0.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }
}

/// Exporter that names the spans, and logs once when the collector becomes unreachable, and once
/// when it recovers.
#[derive(Debug)]
struct NamedSpanExporter<E> {
    inner: E,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for NamedSpanExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        for span in &mut batch {
            let fields = std::mem::take(&mut span.attributes);
            let named = name::named(&span.name, span.span_kind.clone(), fields);
            span.name = named.name.into();
            span.span_kind = named.kind;
            span.attributes = named.attributes;
        }
        let sent = self.inner.export(batch).await;
        let failed = sent.is_err();
        if failed != self.failing.swap(failed, Ordering::Relaxed) {
            match &sent {
                Ok(()) => tracing::info!("the trace collector is reachable again"),
                Err(error) => tracing::warn!(%error, "cannot export traces to the collector"),
            }
        }
        if failed {
            metrics::counter!("sinew_spans_lost_total").increment(spans as u64);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests;
