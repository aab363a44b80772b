//! Server time of console pages with a long history and a large graph.

use std::net::SocketAddr;
use std::time::Instant;

use futures_util::StreamExt as _;
use serde::Serialize;
use sinew_mesh::history::{ClosedExecution, HistoryFilter};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::{ExecutionId, code};

use crate::child::BenchProcessError;
use crate::cluster::{BenchCluster, LARGE_NODES, connect};
use crate::http_load::HttpConnection;
use crate::order::{DriverOrder, IN_FLIGHT, MeasuredTime, median};
use crate::process::{BenchProcess, resident};

/// Number of executions in the history.
const EXECUTIONS: usize = 100_000;
/// Maximum records in flight to the server.
const RECORDS_AT_ONCE: usize = 256;
/// Every n-th execution failed; every n-th has a rare workflow and a rare label.
const RARITY: (usize, usize) = (20, 2_000);
/// Requests of each page.
const ROUNDS: usize = 15;

/// Duration of a page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PageFigure {
    pub(crate) page: &'static str,
    /// First request, without cached data.
    pub(crate) first_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) most_ms: f64,
    pub(crate) kib: f64,
}

/// Measurements of console pages.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ConsoleFigures {
    /// Executions of the history.
    pub(crate) executions: usize,
    /// Number of nodes of the graph.
    pub(crate) nodes: usize,
    pub(crate) pages: Vec<PageFigure>,
    /// Memory of the gateway before and after all pages, in MiB.
    pub(crate) idle_mib: f64,
    pub(crate) used_mib: f64,
}

/// Fills a history and measures its pages, with fewer executions if `few` is set.
pub(crate) async fn console(few: bool, note: &dyn Fn(&str)) -> Result<ConsoleFigures, Failure> {
    let failed = |error: BenchProcessError| {
        Failure::new(FailureKind::Failed, code::BENCH_CANNOT_GO_ON.as_str(), error.0)
    };
    let executions = if few { 2_000 } else { EXECUTIONS };
    let mut cluster = BenchCluster::start(false, None, None).await?;
    let order =
        DriverOrder::Run { workflow: "chain_direct".to_owned(), items: 0, count: 1, at_once: IN_FLIGHT };
    cluster.driver.ask::<MeasuredTime>(&order).await?;
    note(&format!("console: {executions} records"));
    let middle = fill_history(cluster.url(), executions).await?;
    cluster.deploy_large().await?;
    let (process, address) = cluster.gateway(&["--console=full"]).await?;
    let memory = |process: &BenchProcess| process.pid().map(resident).unwrap_or_default();
    let mut figures = ConsoleFigures {
        executions,
        nodes: LARGE_NODES,
        idle_mib: memory(&process),
        ..ConsoleFigures::default()
    };
    let list = "/api/v1/executions?limit=50";
    let graph = "/api/v1/workflows/large/drawing?format=placed";
    for (page, path) in [
        ("first page of the list", list.to_owned()),
        ("list of what failed", format!("{list}&status=failed")),
        ("list of a rare workflow", format!("{list}&workflow=rare")),
        ("page in the middle of the list", format!("{list}&cursor={middle}")),
        (
            "list of what failed or waits, from the middle",
            format!("{list}&status=failed,waiting&cursor={middle}"),
        ),
        ("page of the console: executions", "/console/executions".to_owned()),
        ("page of the console: pulse", "/console".to_owned()),
        ("large graph: places of nodes", graph.to_owned()),
        ("large graph: edges", format!("{graph}&part=edges")),
        ("large graph: a window", format!("{graph}&part=window&right=1600&bottom=1200")),
        ("page of the console: large workflow", "/console/workflows/large".to_owned()),
    ] {
        note(&format!("console: {page}"));
        figures.pages.push(measure_page(address, page, &path).await.map_err(failed)?);
    }
    figures.used_mib = memory(&process);
    process.kill9().await?;
    cluster.stop().await?;
    Ok(figures)
}

async fn measure_page(
    gateway: SocketAddr,
    page: &'static str,
    path: &str,
) -> Result<PageFigure, BenchProcessError> {
    let mut connection = HttpConnection::open(gateway).await?;
    let mut each = Vec::with_capacity(ROUNDS);
    let (mut first_ms, mut bytes) = (0.0, 0);
    for round in 0..=ROUNDS {
        let asked = Instant::now();
        let answer = connection.get(path).await?;
        let ms = asked.elapsed().as_secs_f64() * 1e3;
        if round == 0 {
            (first_ms, bytes) = (ms, answer.len());
        } else {
            each.push(ms);
        }
    }
    let most_ms = each.iter().copied().fold(0.0, f64::max);
    Ok(PageFigure { page, first_ms, median_ms: median(each), most_ms, kib: bytes as f64 / 1024.0 })
}

/// Adds copies of a closed execution to the history, with distinct ids and start times up to now.
/// Returns the page cursor in the middle of their list.
async fn fill_history(url: &str, count: usize) -> Result<String, Failure> {
    let mesh = connect(url).await?;
    let history = mesh.history();
    let model = loop {
        // The execution has ended, but its record may not be stored yet.
        if let Some(found) = history.list(&HistoryFilter::default(), 1).await?.pop() {
            break found;
        }
        tokio::task::yield_now().await;
    };
    let cannot =
        |reason: String| Failure::new(FailureKind::Failed, code::BENCH_CANNOT_GO_ON.as_str(), reason);
    let stored = history.get(&model.execution).await?;
    let (model, bytes) = stored.ok_or_else(|| cannot("the record of the model is gone".to_owned()))?;
    let record = ExecutionRecord::decode(&bytes).map_err(|error| cannot(error.to_string()))?;
    let copies = futures_util::stream::iter(1..=count).map(|n| {
        let (closed, record) = copy_of(&model, &record, n, count);
        async move { history.put(&closed, record.encode()).await }
    });
    let stored: Vec<_> = copies.buffer_unordered(RECORDS_AT_ONCE).collect().await;
    stored.into_iter().collect::<Result<(), _>>()?;
    let (middle, _) = copy_of(&model, &record, count / 2, count);
    Ok(format!("1.{}.{}", middle.started, middle.execution))
}

/// Returns the n-th of all copies, ten of which started per second.
fn copy_of(
    model: &ClosedExecution,
    record: &ExecutionRecord,
    n: usize,
    count: usize,
) -> (ClosedExecution, ExecutionRecord) {
    let (mut closed, mut record) = (model.clone(), record.clone());
    let (is_failed, is_rare) = (n.is_multiple_of(RARITY.0), n.is_multiple_of(RARITY.1));
    closed.execution = ExecutionId::of("bench", "console", &n.to_string());
    closed.started = model.started - 100 * (count - n) as u64;
    closed.ended = closed.started + 90;
    if is_failed {
        "failure".clone_into(&mut closed.status);
    }
    if is_rare {
        "rare".clone_into(&mut closed.workflow);
        record.meta.labels.insert("kind".to_owned(), "rare".to_owned());
    }
    (record.meta.execution, record.meta.created) = (closed.execution.clone(), closed.started);
    (closed, record)
}
