//! Places of tasks that wait for others: free while they wait.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sinew_mesh::task::QueuePlaces;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of an agent in this process.
#[derive(Clone, Debug)]
pub(crate) struct AgentPlaces {
    /// One for each task that is worked on.
    pub(crate) working: Arc<Semaphore>,
    /// One for each delivery of the queue; set when the queue is open.
    pub(crate) queue: Arc<OnceLock<QueuePlaces>>,
}

/// The place of one task.
#[derive(Debug, Default)]
pub(crate) struct TaskSlot(Mutex<Option<HeldPlace>>);

#[derive(Debug)]
struct HeldPlace {
    places: AgentPlaces,
    permit: Option<OwnedSemaphorePermit>,
    /// Parts of the handler that wait at this time.
    parked: u32,
}

impl TaskSlot {
    /// Keeps the place until the task is dropped.
    pub(crate) fn hold(&self, places: AgentPlaces, permit: OwnedSemaphorePermit) {
        *self.held() = Some(HeldPlace { places, permit: Some(permit), parked: 0 });
    }

    /// Gives the place up for good.
    pub(crate) fn release(&self) {
        drop(self.held().take());
    }

    /// Waits without a place. The place is taken again by the last of several parts that wait at the same time.
    pub(crate) async fn parked<F: Future>(&self, waiting: F) -> F::Output {
        let Some(parked) = self.park() else { return waiting.await };
        let output = waiting.await;
        parked.unpark().await;
        output
    }

    fn park(&self) -> Option<ParkedTask<'_>> {
        let mut held = self.held();
        let held = held.as_mut()?;
        held.parked += 1;
        drop(held.permit.take());
        let lent = held.places.queue.get().map(QueuePlaces::lend);
        Some(ParkedTask { slot: self, places: held.places.clone(), _lent: lent, is_over: false })
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<HeldPlace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a task that waits for others.
struct ParkedTask<'a> {
    slot: &'a TaskSlot,
    places: AgentPlaces,
    _lent: Option<sinew_mesh::task::LentPlace>,
    is_over: bool,
}

impl ParkedTask<'_> {
    async fn unpark(mut self) {
        self.is_over = true;
        if !self.is_last() {
            return;
        }
        let permit = Arc::clone(&self.places.working).acquire_owned().await.ok();
        if let Some(held) = self.slot.held().as_mut() {
            held.permit = permit;
        }
    }

    /// Takes note that this part waits no more; says whether it was the last one.
    fn is_last(&self) -> bool {
        let mut held = self.slot.held();
        let Some(held) = held.as_mut() else { return false };
        held.parked = held.parked.saturating_sub(1);
        held.parked == 0
    }
}

impl Drop for ParkedTask<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_last();
        }
    }
}
