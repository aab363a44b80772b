//! Where traces go: the variables of OpenTelemetry, read the way its specification says.

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};

use super::TelemetryError;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// A collector that was named. Headers and timeouts are read by the exporter itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Collector {
    endpoint: String,
}

impl Collector {
    /// The collector that the environment names; none when it names none or switches traces off.
    pub(super) fn named(
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TelemetryError> {
        let is =
            |name: &str, word: &str| environment(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        if is(DISABLED, "true") || is(TRACES_EXPORTER, "none") {
            return Ok(None);
        }
        let endpoint = match (environment(TRACES_ENDPOINT), environment(ENDPOINT)) {
            // The variable for traces is taken as it is, the one for everything gets the path of traces.
            (Some(endpoint), _) => endpoint,
            (None, Some(base)) => format!("{}/v1/traces", base.trim_end_matches('/')),
            (None, None) => return Ok(None),
        };
        if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            return Err(TelemetryError::Export("the endpoint is no http or https address".into()));
        }
        match environment(TRACES_PROTOCOL).or_else(|| environment(PROTOCOL)).as_deref() {
            None | Some("http/protobuf") => Ok(Some(Self { endpoint })),
            Some(other) => Err(TelemetryError::Export(format!(
                "protocol '{}' is not spoken here, only http/protobuf",
                other.chars().take(32).collect::<String>().escape_debug()
            ))),
        }
    }

    /// The exporter for it.
    pub(super) fn exporter(&self) -> Result<SpanExporter, TelemetryError> {
        // The exporter's HTTP client takes the process's default, and panics when there is none.
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

    fn named(variables: &[(&str, &str)]) -> Result<Option<Collector>, TelemetryError> {
        let find =
            |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        Collector::named(&find)
    }

    #[test]
    fn a_collector_is_named_by_the_standard_variables() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let cases: [Case<'_>; 7] = [
            (&[], None),
            (&[(ENDPOINT, "http://c:4318")], Some("http://c:4318/v1/traces")),
            (&[(ENDPOINT, "https://c/otlp/"), (PROTOCOL, "http/protobuf")], Some("https://c/otlp/v1/traces")),
            (&[(ENDPOINT, "http://c"), (TRACES_ENDPOINT, "http://t/in")], Some("http://t/in")),
            (
                &[(ENDPOINT, "http://c"), (PROTOCOL, "grpc"), (TRACES_PROTOCOL, "http/protobuf")],
                Some("http://c/v1/traces"),
            ),
            (&[(ENDPOINT, "http://c"), (DISABLED, "TRUE")], None),
            (&[(ENDPOINT, "http://c"), (TRACES_EXPORTER, "none")], None),
        ];
        for (variables, wanted) in cases {
            let found = named(variables).unwrap().map(|collector| collector.endpoint);
            assert_eq!(found.as_deref(), wanted, "{variables:?}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for variables in [
            &[(ENDPOINT, "collector:4317")][..],
            &[(ENDPOINT, "http://c"), (PROTOCOL, "grpc")],
            &[(ENDPOINT, "http://c"), (PROTOCOL, "http/json\u{1b}[31m")],
        ] {
            let error = named(variables).unwrap_err();
            assert_eq!(error.code(), "SINEW-8062");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }
}
