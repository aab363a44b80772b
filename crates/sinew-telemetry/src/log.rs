//! Log lines on stderr: for people on a terminal, otherwise one JSON object per line, always
//! without secrets.

use std::io::{self, Write};
use std::sync::Arc;

use sinew_source::{EscapePolicy, escape};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use super::{TelemetryError, TelemetryOptions};

/// Default filter: Sinew's own messages, and warnings of other crates.
const DEFAULT_FILTER: &str = "warn,sinew=info";
/// Filters of crates whose failures Sinew reports itself.
const FOREIGN_FILTERS: [&str; 3] = ["opentelemetry=off", "hyper=warn", "rmcp=error"];
/// Variables whose values are redacted in logs.
const SECRET_VARIABLES: [&str; 5] = [
    sinew_protocol::env::NATS_PASSWORD,
    sinew_protocol::env::RESULT_KEY,
    sinew_protocol::env::NATS_TOKEN,
    sinew_protocol::env::OTLP_HEADERS,
    sinew_protocol::env::OTLP_TRACES_HEADERS,
];
/// Minimum length of a redacted secret: shorter ones would redact ordinary words.
const MIN_SECRET_BYTES: usize = 4;
const REDACTED: &str = "[redacted]";

/// Returns the filter of `SINEW_LOG`, in the syntax of `tracing`. No setting enables what
/// [`is_safe_to_log`] disables.
pub(super) fn filter<S: Subscriber>(
    wanted: Option<&str>,
) -> Result<impl Filter<S> + Send + Sync + 'static, TelemetryError> {
    let parse = |text: &str| {
        EnvFilter::builder().parse(text).map_err(|error| TelemetryError::Filter(error.to_string()))
    };
    let chosen = match wanted {
        Some(text) => parse(text),
        None => parse(&format!("{DEFAULT_FILTER},{}", FOREIGN_FILTERS.join(","))),
    }?;
    // Without a hint, every crate checks the filter for every event.
    let safe = filter_fn(is_safe_to_log).with_max_level_hint(LevelFilter::TRACE);
    Ok(chosen.and(safe))
}

/// Returns whether lines of this origin are free of message contents and credentials.
///
/// Below the level `info` the NATS client logs payloads, server responses and its own password, and
/// HTTP and TLS libraries log the data that they transfer. The MCP library logs client messages up
/// to `warn`. Crates of Sinew log no contents at any level, so all their levels are safe.
fn is_safe_to_log(origin: &Metadata<'_>) -> bool {
    let name = origin.target().split("::").next().unwrap_or_default();
    let own = name == "sinew" || name.strip_prefix("sinew_").is_some_and(|rest| !rest.is_empty());
    let safest = if name == "rmcp" { Level::ERROR } else { Level::INFO };
    own || *origin.level() <= safest
}

/// Returns the layer that writes lines.
pub(super) fn layer<S, W>(
    options: &TelemetryOptions,
    scrubber: SecretScrubber,
    to: W,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let policy = EscapePolicy { keep_line_breaks: false, keep_styles: options.terminal && options.color };
    let lines = tracing_subscriber::fmt::layer().with_writer(ScrubbedWriter {
        to,
        scrubber: Arc::new(scrubber),
        policy,
    });
    if options.terminal {
        lines.with_ansi(options.color).compact().boxed()
    } else {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
    }
}

/// Redacts secrets in lines.
#[derive(Debug)]
pub(super) struct SecretScrubber {
    /// Longest first, so that no remainder of a longer secret is left.
    secrets: Vec<String>,
}

impl SecretScrubber {
    /// Collects the secrets in the environment of this process.
    pub(super) fn new(environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut secrets = Vec::new();
        for value in SECRET_VARIABLES.iter().filter_map(|name| environment(name)) {
            // Headers are a list of `name=value`; each value is a separate secret.
            let parts =
                value.split(',').filter_map(|part| part.split_once('=')).map(|(_, secret)| secret.trim());
            secrets.extend(parts.map(str::to_owned));
            secrets.push(value);
        }
        // Also in their JSON form.
        let escaped = |secret: &String| serde_json::to_string(secret).ok();
        let escaped: Vec<String> =
            secrets.iter().filter_map(escaped).map(|text| text.trim_matches('"').to_owned()).collect();
        secrets.extend(escaped);
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// Redacts a line: the known secrets, and the user information in addresses.
    pub(super) fn clean(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for secret in &self.secrets {
            if line.contains(secret.as_str()) {
                line = line.replace(secret.as_str(), REDACTED);
            }
        }
        without_user_info(&line)
    }
}

/// Removes the user information from `scheme://user:password@host`.
fn without_user_info(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let authority =
            after.find(|c: char| c.is_whitespace() || "/?#\"'<>\\,".contains(c)).unwrap_or(after.len());
        let (authority, after) = after.split_at(authority);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                clean.push_str(REDACTED);
                clean.push('@');
                clean.push_str(host);
            }
            None => clean.push_str(authority),
        }
        rest = after;
    }
    clean.push_str(rest);
    clean
}

/// Creates writers that redact every line. A line is one write: tracing formats it completely
/// before it writes.
struct ScrubbedWriter<W> {
    to: W,
    scrubber: Arc<SecretScrubber>,
    policy: EscapePolicy,
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for ScrubbedWriter<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Line { to: self.to.make_writer(), scrubber: Arc::clone(&self.scrubber), policy: self.policy }
    }
}

struct Line<W> {
    to: W,
    scrubber: Arc<SecretScrubber>,
    policy: EscapePolicy,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let clean = self.scrubber.clean(&String::from_utf8_lossy(line));
        // Untrusted text in a message must neither control the terminal nor look like another line
        // of the log.
        let text = clean.strip_suffix('\n').unwrap_or(&clean);
        self.to.write_all(format!("{}\n", escape(text, self.policy)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "NATS_PASSWORD" => "canary-one",
            "SINEW_RESULT_KEY" => "canary\"two",
            "OTEL_EXPORTER_OTLP_HEADERS" => "authorization=canary-three,x-key=canary-four",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn logged(terminal: bool, log: impl FnOnce()) -> String {
        logged_with(None, terminal, log)
    }

    fn logged_with(wanted: Option<&str>, terminal: bool, log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let to = kept.clone();
        let options = TelemetryOptions { terminal, ..TelemetryOptions::default() };
        let lines = layer(&options, SecretScrubber::new(&environment), move || to.clone());
        let lines = lines.with_filter(filter(wanted).unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_secret_reaches_a_line() {
        for terminal in [true, false] {
            let text = logged(terminal, || {
                let span = tracing::info_span!(target: "sinew_mesh", "connect", secret = "canary-one");
                let _in = span.enter();
                tracing::info!(target: "sinew_mesh", url = "nats://bob:canary-five@host:4222", "canary-one");
                tracing::warn!(target: "sinew_mesh", key = "canary\"two", "Bearer canary-three or canary-four");
                tracing::warn!(target: "sinew", "http://canary-six@[::1]:80/a?b and tls://h:1, fine@example.org");
            });
            assert!(!text.contains("canary"), "{text}");
            for kept in ["host:4222", "[::1]:80/a?b", "tls://h:1", "fine@example.org", REDACTED] {
                assert!(text.contains(kept), "{kept} is missing: {text}");
            }
        }
    }

    #[test]
    fn a_line_is_one_json_object_unless_somebody_looks() {
        let log = || tracing::info!(target: "sinew_executor", shard = 3, "a\nb \u{1b}[31m");
        let json = logged(false, log);
        assert_eq!(json.lines().count(), 1, "{json}");
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((line["level"].as_str(), line["shard"].as_i64()), (Some("INFO"), Some(3)));
        assert_eq!(line["message"], "a\nb \u{1b}[31m");
        let hostile = "a\r\nb \u{1b}]0;x\u{7} \u{9b}2J \u{7f} \u{202e} \u{e0041}";
        for terminal in [true, false] {
            let text = logged(terminal, || tracing::warn!(target: "sinew", name = hostile, "{hostile}"));
            assert!(!text.trim_end().chars().any(char::is_control) && !text.contains('\u{202e}'), "{text:?}");
        }
        let text = logged(true, log);
        assert!(text.contains("INFO") && !text.contains('{') && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_filter_is_ours_or_tracings() {
        let text = logged(true, || {
            tracing::info!(target: "sinew_mesh", "ours");
            tracing::debug!(target: "sinew_mesh", "detail");
            tracing::info!(target: "async_nats", "theirs");
            tracing::error!(target: "opentelemetry_sdk", "exporter");
        });
        assert!(text.contains("ours") && text.lines().count() == 1, "{text}");
        assert!(filter::<tracing_subscriber::Registry>(Some("sinew_mesh=debug,async_nats=info")).is_ok());
        let wrong = filter::<tracing_subscriber::Registry>(Some("sinew=loud")).err().unwrap();
        assert_eq!(wrong.code(), "SINEW-8061");
    }

    #[test]
    fn no_setting_opens_the_details_of_libraries() {
        for wanted in
            ["trace", "async_nats=trace", "async_nats::connection=trace,debug", "[{op}]=trace,trace"]
        {
            let text = logged_with(Some(wanted), false, || {
                let span = tracing::trace_span!(target: "async_nats", "operation", op = "canary-span");
                let _in = span.enter();
                tracing::trace!(target: "async_nats::connection", op = "canary-payload", "read");
                tracing::debug!(target: "async_nats::jetstream::context", "canary-request");
                tracing::debug!(target: "hyper::proto", "canary-header");
                tracing::trace!(target: "sinewy", "canary-stranger");
                tracing::warn!(target: "async_nats", "their trouble");
                tracing::trace!(target: "sinew_mesh::send", "our detail");
                tracing::debug!(target: "sinew", "our detail");
            });
            assert!(!text.contains("canary"), "{wanted}: {text}");
            let ours = usize::from(!wanted.starts_with("async_nats="));
            assert!(text.contains("their trouble") && text.matches("our detail").count() >= ours, "{text}");
        }
    }
}
