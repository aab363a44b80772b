//! Logs, traces, metrics and health of a service of Sinew.
//!
//! Layer: a service calls [`start_service`] once, before it connects, and [`Telemetry::stop`] once,
//! after it has drained. The other crates only use `tracing` and `metrics`; this crate converts
//! their output to log lines, spans and samples.
//!
//! It makes no decisions, never writes a secret or the content of a message, and never stops a
//! service: without a collector or scraper, samples are lost, but work continues.

mod collector;
mod health;
mod log;
pub mod metric;
mod name;
mod trace;

use sinew_protocol::code;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Filter, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use health::ReadinessCheck;
pub use trace::{continue_trace, inject_trace};

/// Settings of a service's telemetry.
pub struct TelemetryOptions {
    /// Id of this process among those of its role, such as the executor's id.
    pub id: Option<String>,
    /// Address of `/healthz`, `/readyz` and `/metrics`. `None` opens no port.
    pub health: Option<SocketAddr>,
    /// Determines the response of `/readyz`.
    pub ready: ReadinessCheck,
    /// Whether log lines are for people instead of JSON.
    pub terminal: bool,
    /// Whether lines for people have colours.
    pub color: bool,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self { id: None, health: None, ready: Arc::new(|| Ok(())), terminal: false, color: false }
    }
}

impl std::fmt::Debug for TelemetryOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TelemetryOptions")
            .field("id", &self.id)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

/// Reason why telemetry cannot start.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The port for health and metrics is in use or not permitted.
    #[error("cannot listen on {address} for health and metrics: {error}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// `SINEW_LOG` is not a valid filter.
    #[error("SINEW_LOG is not a valid filter: {0}")]
    Filter(String),
    /// The OpenTelemetry variables require an unsupported export.
    #[error("traces cannot be exported: {0}")]
    Export(String),
}

impl TelemetryError {
    /// Returns the operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Port { .. } => code::HEALTH_PORT_CANNOT_BE_OPENED.as_str(),
            Self::Filter(_) => code::SINEW_LOG_NOT_VALID_FILTER.as_str(),
            Self::Export(_) => code::TRACE_EXPORT_UNUSABLE.as_str(),
        }
    }
}

/// Running telemetry of this process.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<trace::TraceExporter>,
    health: Option<health::HealthServer>,
}

/// Starts logs, traces (if the environment has a collector) and the health port (if `options` has
/// an address).
///
/// `role` is for example `executor`. A second call in one process keeps the logs and metrics of the
/// first.
///
/// # Errors
/// The port cannot be opened, or an environment variable is invalid.
pub async fn start_service(
    role: &'static str,
    options: TelemetryOptions,
) -> Result<Telemetry, TelemetryError> {
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let wanted = environment(sinew_protocol::env::LOG);
    let traces = collector::TraceCollector::named(&environment)?
        .map(|collector| trace::TraceExporter::new(role, options.id.as_deref(), &collector, &environment))
        .transpose()?;
    let scrubber = log::SecretScrubber::new(&environment);
    // Fails if this process already has a log, as in a test with two services.
    let _ = if let Some(traces) = &traces {
        let lines = log::layer(&options, scrubber, std::io::stderr);
        let lines = lines.with_filter(log::filter(wanted.as_deref())?);
        tracing_subscriber::registry().with(traces.layer()).with(lines).try_init()
    } else {
        let lines = log::layer(&options, scrubber, std::io::stderr);
        lines_alone(lines, log::filter(wanted.as_deref())?).try_init()
    };
    let health = match options.health {
        None => None,
        Some(address) => {
            let page = metric::install(role);
            Some(health::HealthServer::start(address, options.ready, page).await?)
        }
    };
    Ok(Telemetry { traces, health })
}

/// Returns a subscriber that writes lines and exports no spans.
///
/// An empty layer for spans is not equivalent: with it, every event of every crate is built before
/// it is dropped.
fn lines_alone(
    lines: impl Layer<Registry> + Send + Sync,
    filter: impl Filter<Registry> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::registry().with(lines.with_filter(filter))
}

/// Starts the traces of a command line client, if the environment has a collector. Writes no log
/// and opens no port.
///
/// # Errors
/// An environment variable is invalid.
pub fn start_client() -> Result<Telemetry, TelemetryError> {
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let traces = collector::TraceCollector::named(&environment)?
        .map(|collector| trace::TraceExporter::new("client", None, &collector, &environment))
        .transpose()?;
    if let Some(traces) = &traces {
        let _ = tracing_subscriber::registry().with(traces.layer()).try_init();
    }
    Ok(Telemetry { traces, health: None })
}

impl Telemetry {
    /// Returns the address of the health port, with the assigned number for port 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.health.as_ref().map(health::HealthServer::address)
    }

    /// Makes `/readyz` return "draining", so that load balancers send no new requests.
    pub fn drain(&self) {
        if let Some(health) = &self.health {
            health.drain();
        }
    }

    /// Exports the remaining spans and closes the port, within the timeout `within`.
    pub async fn stop(self, within: Duration) {
        if let Some(traces) = self.traces {
            traces.stop(within).await;
        }
        drop(self.health);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter;

    #[test]
    fn events_that_no_line_shows_are_not_built() {
        for (wanted, level) in [(None, LevelFilter::INFO), (Some("sinew_mesh=debug"), LevelFilter::DEBUG)] {
            let scrubber = log::SecretScrubber::new(&|_| None);
            let lines = log::layer(&TelemetryOptions::default(), scrubber, std::io::sink);
            let subscriber = lines_alone(lines, log::filter(wanted).unwrap());
            assert_eq!(subscriber.max_level_hint(), Some(level), "{wanted:?}");
        }
    }
}
