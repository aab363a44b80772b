//! Traffic statistics, collected while a client displays them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sinew_documents::figures::TrafficReport;
use sinew_mesh::Mesh;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_operations::failure::Failure;
use sinew_operations::mesh_status::read_streams;
use sinew_operations::traffic_figures::TrafficFigures;
use sinew_protocol::header::TIME;
use sinew_runtime::local;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time without requests after which events are no longer collected.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

/// Collected statistics, and the time of the last request for them.
#[derive(Default)]
pub(crate) struct TrafficMeter(Arc<Mutex<MeterState>>);

#[derive(Default)]
struct MeterState {
    figures: TrafficFigures,
    asked: Option<Instant>,
    is_running: bool,
}

fn lock(state: &Mutex<MeterState>) -> MutexGuard<'_, MeterState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TrafficMeter {
    /// Returns the statistics of the last minute. The first request starts the collection.
    pub(crate) async fn report(
        &self,
        mesh: &Mesh,
        draining: &CancellationToken,
    ) -> Result<TrafficReport, Failure> {
        let begins = {
            let mut state = lock(&self.0);
            state.asked = Some(Instant::now());
            !std::mem::replace(&mut state.is_running, true)
        };
        if begins && let Err(failure) = self.begin(mesh, draining).await {
            lock(&self.0).is_running = false;
            return Err(failure);
        }
        let streams = read_streams(mesh).await?;
        let now = local::now();
        let mut state = lock(&self.0);
        state.figures.note_streams(now, streams);
        Ok(state.figures.report(now))
    }

    async fn begin(&self, mesh: &Mesh, draining: &CancellationToken) -> Result<(), Failure> {
        let mut events = mesh.events().follow(&EventFilter::default(), EventStart::Now).await?;
        lock(&self.0).figures = TrafficFigures::begin(local::now());
        let (shared, draining) = (Arc::clone(&self.0), draining.clone());
        tokio::spawn(async move {
            loop {
                let heard = tokio::select! {
                    () = draining.cancelled() => break,
                    event = events.next() => Some(event),
                    () = tokio::time::sleep(IDLE_TIMEOUT) => None,
                };
                let mut state = lock(&shared);
                if state.asked.is_none_or(|asked| asked.elapsed() > IDLE_TIMEOUT) {
                    break;
                }
                if let Some(event) = heard {
                    let at = event.headers.get(TIME).and_then(|at| at.as_str().parse().ok());
                    let (kind, execution) = (event.kind.name(), event.execution.as_str());
                    let kind = kind.as_deref().unwrap_or("other");
                    state.figures.note_event(local::now(), kind, execution, &event.body, at);
                }
            }
            lock(&shared).is_running = false;
        });
        Ok(())
    }
}
