//! Cost of a gateway: calls through it, compared with calls over the mesh and through a bare gateway in
//! the same rounds, and open streams.

use serde::Serialize;
use sinew_operations::failure::Failure;

use crate::cluster::BenchCluster;
use crate::order::{DriverOrder, IN_FLIGHT, MeasuredTime, median};
use crate::process::{BenchProcess, resident};

/// Number of open streams.
const STREAMS: usize = 5_000;

/// Measurements of a gateway.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct GatewayFigures {
    /// Median microseconds of a call over the mesh, a bare gateway, and the gateway, one at a time.
    pub(crate) mesh_p50_us: f64,
    pub(crate) bare_p50_us: f64,
    pub(crate) gateway_p50_us: f64,
    /// Calls per second, 64 at a time.
    pub(crate) mesh_per_second: f64,
    pub(crate) bare_per_second: f64,
    pub(crate) gateway_per_second: f64,
    /// Ratio of the rates of gateway and mesh.
    pub(crate) rate_ratio: f64,
    pub(crate) streams: usize,
    /// Seconds from the cause of an event until all streams received it.
    pub(crate) event_seconds: f64,
    pub(crate) idle_mib: f64,
    pub(crate) streams_mib: f64,
}

impl GatewayFigures {
    /// Returns the latency that the gateway adds to a call, in microseconds.
    pub(crate) fn added_us(&self) -> f64 {
        self.gateway_p50_us - self.mesh_p50_us
    }
}

/// Measures a gateway, with a tenth of the work if `few` is set.
pub(crate) async fn gateway(few: bool, rounds: u32, note: &dyn Fn(&str)) -> Result<GatewayFigures, Failure> {
    let mut cluster = BenchCluster::start(false, None, None).await?;
    let (bare, bare_address) = cluster.bare_gateway().await?;
    let (process, address) = cluster.gateway(&[]).await?;
    let memory = |process: &BenchProcess| process.pid().map(resident).unwrap_or_default();
    let mut figures = GatewayFigures { idle_mib: memory(&process), ..GatewayFigures::default() };
    let (alone, many, streams) = if few { (100, 400, 200) } else { (2_000, 10_000, STREAMS) };
    let mut samples: [Vec<f64>; 6] = Default::default();
    for round in 0..=rounds {
        note(&format!("gateway: round {round} of {rounds}"));
        let orders = [
            (DriverOrder::MeshCalls { count: alone, at_once: 1 }, 0),
            (DriverOrder::GatewayCalls { gateway: bare_address, count: alone, at_once: 1 }, 1),
            (DriverOrder::GatewayCalls { gateway: address, count: alone, at_once: 1 }, 2),
            (DriverOrder::MeshCalls { count: many, at_once: IN_FLIGHT }, 3),
            (DriverOrder::GatewayCalls { gateway: bare_address, count: many, at_once: IN_FLIGHT }, 4),
            (DriverOrder::GatewayCalls { gateway: address, count: many, at_once: IN_FLIGHT }, 5),
        ];
        for (order, place) in orders {
            let took: MeasuredTime = cluster.driver.ask(&order).await?;
            let figure = if place < 3 { took.p50_us } else { took.number as f64 / took.seconds };
            // The first round is a warm-up.
            if round > 0 {
                samples[place].push(figure);
            }
        }
    }
    bare.kill9().await?;
    let [mesh_alone, bare_alone, gateway_alone, mesh_rate, bare_rate, gateway_rate] = samples.map(median);
    (figures.mesh_p50_us, figures.bare_p50_us, figures.gateway_p50_us) =
        (mesh_alone, bare_alone, gateway_alone);
    (figures.mesh_per_second, figures.bare_per_second, figures.gateway_per_second) =
        (mesh_rate, bare_rate, gateway_rate);
    figures.rate_ratio = gateway_rate / mesh_rate;
    note(&format!("gateway: {streams} streams"));
    let opened: MeasuredTime =
        cluster.driver.ask(&DriverOrder::OpenStreams { gateway: address, total: streams }).await?;
    figures.streams = opened.number;
    figures.streams_mib = memory(&process);
    let heard: MeasuredTime = cluster.driver.ask(&DriverOrder::EndStreams).await?;
    figures.event_seconds = heard.seconds;
    process.kill9().await?;
    cluster.stop().await?;
    Ok(figures)
}
