//! Adaptive concurrency limit of direct calls per agent (AIMD): unlimited until the first refusal,
//! then the accepted count plus one per 32 completions. So a wide fan-out waits here instead of
//! being refused.

use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Minimum limit: a refusal may be caused by other callers of the agent.
const FEWEST: usize = 64;
/// Number of completions that raise the limit by one.
const MORE_AFTER: usize = 32;

/// Concurrency limit of one agent.
pub(super) struct ConcurrencyLimit {
    places: Arc<Semaphore>,
    width: Mutex<Width>,
}

struct Width {
    /// Current limit; effectively unlimited before the first refusal.
    places: usize,
    /// Completions since the limit was last raised.
    ended: usize,
}

/// A slot of the limit, released on drop.
pub(super) struct Permit(OwnedSemaphorePermit);

impl ConcurrencyLimit {
    /// Creates an unlimited limit.
    pub(super) fn new() -> Self {
        let places = Semaphore::MAX_PERMITS;
        Self { places: Arc::new(Semaphore::new(places)), width: Mutex::new(Width { places, ended: 0 }) }
    }

    /// Waits in order for a slot; `None` once the limit is dropped.
    pub(super) async fn enter(&self) -> Option<Permit> {
        Arc::clone(&self.places).acquire_owned().await.ok().map(Permit)
    }

    /// Releases the slot of an accepted call that has ended.
    pub(super) fn ended(&self, place: Permit) {
        drop(place);
        let Ok(mut width) = self.width.lock() else { return };
        if width.places == Semaphore::MAX_PERMITS {
            return;
        }
        width.ended += 1;
        if width.ended >= MORE_AFTER {
            width.ended = 0;
            self.widen(&mut width, 1);
        }
    }

    /// Drops the slot of a refused call, and lowers the limit to the slots of other calls.
    pub(super) fn refused(&self, place: Permit) {
        let Ok(mut width) = self.width.lock() else { return };
        width.places -= self.places.forget_permits(Semaphore::MAX_PERMITS);
        if width.places > FEWEST {
            place.0.forget();
            width.places -= 1;
        } else {
            let missing = FEWEST - width.places;
            self.widen(&mut width, missing);
        }
    }

    fn widen(&self, width: &mut Width, more: usize) {
        self.places.add_permits(more);
        width.places += more;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Acquires the slots that are available now.
    fn enter(limit: &ConcurrencyLimit, most: usize) -> Vec<Permit> {
        std::iter::from_fn(|| limit.enter().now_or_never()).map(Option::unwrap).take(most).collect()
    }

    #[test]
    fn as_many_as_were_taken() {
        let limit = ConcurrencyLimit::new();
        let mut inside = enter(&limit, 300);
        assert_eq!(inside.len(), 300, "nobody is held back before a refusal");
        for place in inside.split_off(200) {
            limit.refused(place);
        }
        assert!(enter(&limit, 1).is_empty(), "the agent has as many as it takes");
        for _ in 0..MORE_AFTER {
            limit.ended(inside.pop().unwrap());
        }
        assert_eq!(
            enter(&limit, 300).len(),
            MORE_AFTER + 1,
            "for each that ended another, and one more is tried"
        );
    }

    #[test]
    fn a_few_are_never_held_back() {
        let limit = ConcurrencyLimit::new();
        for _ in 0..200 {
            let place = enter(&limit, 1).pop().unwrap();
            limit.refused(place);
        }
        assert_eq!(enter(&limit, 300).len(), FEWEST);
    }

    #[test]
    fn who_gives_up_leaves_its_place() {
        let limit = ConcurrencyLimit::new();
        let mut inside = enter(&limit, 101);
        limit.refused(inside.pop().unwrap());
        let waiting = Box::pin(limit.enter());
        drop(waiting);
        drop(inside);
        assert_eq!(enter(&limit, 300).len(), 100);
    }
}
