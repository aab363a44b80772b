//! Slots of tasks: released while a task waits.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sinew_mesh::task::QueueSlots;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of an agent in this process.
#[derive(Clone, Debug)]
pub(crate) struct AgentSlots {
    /// One for each task in progress.
    pub(crate) working: Arc<Semaphore>,
    /// One for each delivery of the queue; set when the queue is open.
    pub(crate) queue: Arc<OnceLock<QueueSlots>>,
}

/// The slot of one task.
#[derive(Debug, Default)]
pub(crate) struct TaskSlot {
    held: Mutex<Option<HeldSlot>>,
    /// Held by the part that acquires the slot again. Two parts would acquire two slots, and the
    /// second may never be free.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct HeldSlot {
    places: AgentSlots,
    permit: Option<OwnedSemaphorePermit>,
    /// Parts of the handler that wait now.
    parked: u32,
}

impl TaskSlot {
    /// Holds the slot until the task is dropped.
    pub(crate) fn hold(&self, places: AgentSlots, permit: OwnedSemaphorePermit) {
        *self.held() = Some(HeldSlot { places, permit: Some(permit), parked: 0 });
    }

    /// Releases the slot permanently.
    pub(crate) fn release(&self) {
        drop(self.held().take());
    }

    /// Waits without a slot. The last of several parts that wait concurrently acquires the slot
    /// again.
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
        let lent = held.places.queue.get().map(QueueSlots::lend);
        Some(ParkedTask { slot: self, places: held.places.clone(), _lent: lent, is_over: false })
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<HeldSlot>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a task that waits.
struct ParkedTask<'a> {
    slot: &'a TaskSlot,
    places: AgentSlots,
    _lent: Option<sinew_mesh::task::LentSlot>,
    is_over: bool,
}

impl ParkedTask<'_> {
    async fn unpark(mut self) {
        self.is_over = true;
        if !self.is_last() {
            return;
        }
        let _asking = self.slot.asking.lock().await;
        if self.slot.held().as_ref().is_none_or(|held| held.permit.is_some()) {
            return;
        }
        let permit = Arc::clone(&self.places.working).acquire_owned().await.ok();
        // A part that has started to wait in the meantime acquires the slot when it ends.
        if let Some(held) = self.slot.held().as_mut().filter(|held| held.parked == 0) {
            held.permit = permit;
        }
    }

    /// Records that this part no longer waits; returns whether it was the last one.
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn parts_that_end_one_after_the_other_share_one_place() {
        let working = Arc::new(Semaphore::new(1));
        let places = AgentSlots { working: Arc::clone(&working), queue: Arc::default() };
        let slot = TaskSlot::default();
        slot.hold(places, Arc::clone(&working).try_acquire_owned().unwrap());
        let mut waker = Context::from_waker(Waker::noop());
        let parked = slot.park().unwrap();
        // Another task has the slot when the first part ends, and when a second one waits and ends.
        let other = Arc::clone(&working).try_acquire_owned().unwrap();
        let mut first = pin!(parked.unpark());
        assert!(first.as_mut().poll(&mut waker).is_pending());
        let mut second = pin!(slot.parked(ready(())));
        assert!(second.as_mut().poll(&mut waker).is_pending());
        drop(other);
        assert!(first.as_mut().poll(&mut waker).is_ready());
        assert!(second.as_mut().poll(&mut waker).is_ready());
        assert_eq!(working.available_permits(), 0, "the task has its place again");
        // If a part starts to wait while another one acquires the slot, the slot is released.
        let parked = slot.park().unwrap();
        let other = Arc::clone(&working).try_acquire_owned().unwrap();
        let mut first = pin!(parked.unpark());
        assert!(first.as_mut().poll(&mut waker).is_pending());
        let mut waiting = pin!(slot.parked(pending::<()>()));
        assert!(waiting.as_mut().poll(&mut waker).is_pending());
        drop(other);
        assert!(first.as_mut().poll(&mut waker).is_ready());
        assert_eq!(working.available_permits(), 1, "the place of a task that waits is free");
    }
}
