//! What a service says of itself while it works: logs, traces, metrics, and whether it is alive and ready.
//!
//! Place in the flow: `sinew serve …` and `sinew dev` call [`start`] once, before they connect, and [`Telemetry::stop`]
//! once, after they have drained. The libraries know nothing of it: they use `tracing` and `metrics`, and what they
//! emit is turned into lines, spans and samples here.
//!
//! It never decides anything, never writes a secret or the content of a message, and is never a reason to stop: when
//! nobody collects traces or asks for metrics, work goes on.

mod collector;
pub(crate) mod health;
mod log;
mod metric;
mod name;
mod trace;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub(crate) use health::Ready;
#[allow(unused_imports, reason = "ways in and out of a trace for whoever has headers; tests go both")]
pub(crate) use trace::{continue_from, inject};

/// How a service talks.
pub(crate) struct Options {
    /// The name of this process among those of its role, such as the executor's id.
    pub(crate) id: Option<String>,
    /// Where `/healthz`, `/readyz` and `/metrics` answer; nowhere when absent.
    pub(crate) health: Option<SocketAddr>,
    /// Whether the service can take work, or why it cannot.
    pub(crate) ready: Ready,
    /// Somebody looks: lines for people instead of JSON.
    pub(crate) terminal: bool,
    /// Colour in lines for people.
    pub(crate) color: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { id: None, health: None, ready: Arc::new(|| Ok(())), terminal: false, color: false }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("id", &self.id).field("health", &self.health).finish_non_exhaustive()
    }
}

/// Why a service cannot talk the way it was asked to.
#[derive(Debug, Error)]
pub(crate) enum TelemetryError {
    /// The port for health and metrics is taken, or is not ours to take.
    #[error("cannot listen on {address} for health and metrics: {error}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// `SINEW_LOG` is no filter.
    #[error("SINEW_LOG is no filter: {0}")]
    Filter(String),
    /// The variables for exporting traces ask for what cannot be done.
    #[error("traces cannot be exported: {0}")]
    Export(String),
}

impl TelemetryError {
    /// The operator code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Port { .. } => "SINEW-8060",
            Self::Filter(_) => "SINEW-8061",
            Self::Export(_) => "SINEW-8062",
        }
    }
}

/// The running telemetry of this process.
#[derive(Debug)]
pub(crate) struct Telemetry {
    traces: Option<trace::Traces>,
    health: Option<health::Health>,
}

/// Begins to log, to trace if a collector is named, and to answer on the health port if there is one. `role` is a word
/// such as `executor`.
///
/// Once per process: a second call keeps the first one's logs and metrics.
pub(crate) async fn start(role: &'static str, options: Options) -> Result<Telemetry, TelemetryError> {
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let filter = log::filter(environment(sinew_protocol::env::LOG).as_deref())?;
    let traces = collector::Collector::named(&environment)?
        .map(|collector| trace::Traces::new(role, options.id.as_deref(), &collector, &environment))
        .transpose()?;
    let lines = log::layer(&options, log::Scrubber::new(&environment), std::io::stderr).with_filter(filter);
    let spans = traces.as_ref().map(trace::Traces::layer);
    // A test that starts two services in one process has one log.
    let _ = tracing_subscriber::registry().with(spans).with(lines).try_init();
    let health = match options.health {
        None => None,
        Some(address) => {
            let page = metric::install(role);
            Some(health::Health::start(address, options.ready, page).await?)
        }
    };
    Ok(Telemetry { traces, health })
}

/// Traces of a command that asks the mesh for something, if a collector is named; nothing is logged and no port opened.
pub(crate) fn client() -> Result<Telemetry, TelemetryError> {
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let traces = collector::Collector::named(&environment)?
        .map(|collector| trace::Traces::new("client", None, &collector, &environment))
        .transpose()?;
    if let Some(traces) = &traces {
        let _ = tracing_subscriber::registry().with(traces.layer()).try_init();
    }
    Ok(Telemetry { traces, health: None })
}

impl Telemetry {
    /// Where the health port listens; of use when port 0 was asked for.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.health.as_ref().map(health::Health::address)
    }

    /// From now on `/readyz` says that this service is being drained, so that nothing new is sent here.
    pub(crate) fn drain(&self) {
        if let Some(health) = &self.health {
            health.drain();
        }
    }

    /// Sends what is left of the traces, and closes the port. Takes no longer than `within`, whether a collector
    /// answers or not.
    pub(crate) async fn stop(self, within: Duration) {
        if let Some(traces) = self.traces {
            traces.stop(within).await;
        }
        drop(self.health);
    }
}
