//! Trace collector from the OpenTelemetry variables, interpreted as in their specification.

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};

use sinew_protocol::env::{
    OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER, OTLP_ENDPOINT, OTLP_PROTOCOL, OTLP_TRACES_ENDPOINT,
    OTLP_TRACES_PROTOCOL,
};

use crate::TelemetryError;

/// Configured collector. The exporter itself reads headers and timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceCollector {
    endpoint: String,
}

impl TraceCollector {
    /// Returns the collector of the environment; `None` without one, or if traces are disabled.
    pub(super) fn named(
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TelemetryError> {
        let is =
            |name: &str, word: &str| environment(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        if is(OTEL_SDK_DISABLED, "true") || is(OTEL_TRACES_EXPORTER, "none") {
            return Ok(None);
        }
        let endpoint = match (environment(OTLP_TRACES_ENDPOINT), environment(OTLP_ENDPOINT)) {
            // The variable for traces is used unchanged; the general one gets the path of traces
            // appended.
            (Some(endpoint), _) => endpoint,
            (None, Some(base)) => format!("{}/v1/traces", base.trim_end_matches('/')),
            (None, None) => return Ok(None),
        };
        if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            return Err(TelemetryError::Export("the endpoint is not an http or https address".into()));
        }
        match environment(OTLP_TRACES_PROTOCOL).or_else(|| environment(OTLP_PROTOCOL)).as_deref() {
            None | Some("http/protobuf") => Ok(Some(Self { endpoint })),
            Some(other) => Err(TelemetryError::Export(format!(
                "protocol '{}' is not supported; use http/protobuf",
                other.chars().take(32).collect::<String>().escape_debug()
            ))),
        }
    }

    /// Returns the exporter for this collector.
    pub(super) fn exporter(&self) -> Result<SpanExporter, TelemetryError> {
        // The exporter's HTTP client panics without a default provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        SpanExporter::builder()
            .with_http()
            .with_endpoint(&self.endpoint)
            .with_protocol(Protocol::HttpBinary)
            .build()
            .map_err(|error| TelemetryError::Export(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> Result<Option<TraceCollector>, TelemetryError> {
        let find =
            |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        TraceCollector::named(&find)
    }

    #[test]
    fn a_collector_is_named_by_the_standard_variables() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let cases: [Case<'_>; 7] = [
            (&[], None),
            (&[(OTLP_ENDPOINT, "http://c:4318")], Some("http://c:4318/v1/traces")),
            (
                &[(OTLP_ENDPOINT, "https://c/otlp/"), (OTLP_PROTOCOL, "http/protobuf")],
                Some("https://c/otlp/v1/traces"),
            ),
            (&[(OTLP_ENDPOINT, "http://c"), (OTLP_TRACES_ENDPOINT, "http://t/in")], Some("http://t/in")),
            (
                &[
                    (OTLP_ENDPOINT, "http://c"),
                    (OTLP_PROTOCOL, "grpc"),
                    (OTLP_TRACES_PROTOCOL, "http/protobuf"),
                ],
                Some("http://c/v1/traces"),
            ),
            (&[(OTLP_ENDPOINT, "http://c"), (OTEL_SDK_DISABLED, "TRUE")], None),
            (&[(OTLP_ENDPOINT, "http://c"), (OTEL_TRACES_EXPORTER, "none")], None),
        ];
        for (variables, wanted) in cases {
            let found = named(variables).unwrap().map(|collector| collector.endpoint);
            assert_eq!(found.as_deref(), wanted, "{variables:?}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for variables in [
            &[(OTLP_ENDPOINT, "collector:4317")][..],
            &[(OTLP_ENDPOINT, "http://c"), (OTLP_PROTOCOL, "grpc")],
            &[(OTLP_ENDPOINT, "http://c"), (OTLP_PROTOCOL, "http/json\u{1b}[31m")],
        ] {
            let error = named(variables).unwrap_err();
            assert_eq!(error.code(), "SINEW-8062");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }
}
