//! Health and metrics of a service. A test of its own process: metrics are counted per process.

use std::sync::Arc;
use std::time::Duration;

use sinew_telemetry::TelemetryOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_service_answers_for_its_health_and_metrics() {
    let options = TelemetryOptions {
        health: Some("127.0.0.1:0".parse().unwrap()),
        ready: Arc::new(|| Err("it is not connected yet".to_owned())),
        ..TelemetryOptions::default()
    };
    let telemetry = sinew_telemetry::start_service("executor", options).await.unwrap();
    let address = telemetry.address().unwrap();
    metrics::counter!("sinew_tasks_total").increment(3);
    let get = async |path: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(get("/readyz").await.ends_with("not ready: it is not connected yet\n"));
    let page = get("/metrics").await;
    for line in [
        "sinew_tasks_total 3",
        "# HELP sinew_tasks_total tasks sent to agents and sub-workflows",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        assert!(page.lines().any(|found| found == line), "no line `{line}` in\n{page}");
    }
    let version =
        format!("sinew_build_info{{version=\"{}\",role=\"executor\"}} 1", env!("CARGO_PKG_VERSION"));
    assert!(page.contains(&version), "{page}");
    telemetry.stop(Duration::from_secs(1)).await;
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.unwrap();
}
