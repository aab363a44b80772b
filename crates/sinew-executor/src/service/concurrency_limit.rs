//! Adaptive concurrency limit of direct calls per agent (AIMD): unlimited until the first refusal,
//! then the accepted count plus one per 32 completions. So a wide fan-out waits here instead of
//! being refused.

use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Fewer calls than this are never held back: a refusal may be due to what others asked of the agent.
const FEWEST: usize = 64;
/// After so many calls have ended, one more is tried.
const MORE_AFTER: usize = 32;

/// The way to one agent.
pub(super) struct ConcurrencyLimit {
    places: Arc<Semaphore>,
    width: Mutex<Width>,
}

struct Width {
    /// Places in all, taken and free.
    places: usize,
    /// Calls that ended since there was one place more.
    ended: usize,
}

/// A place in the gate; given back when it is dropped.
pub(super) struct Permit(OwnedSemaphorePermit);

impl ConcurrencyLimit {
    /// A gate that is open.
    pub(super) fn new() -> Self {
        let places = Semaphore::MAX_PERMITS;
        Self { places: Arc::new(Semaphore::new(places)), width: Mutex::new(Width { places, ended: 0 }) }
    }

    /// Waits in line for a place; none when the gate is gone.
    pub(super) async fn enter(&self) -> Option<Permit> {
        Arc::clone(&self.places).acquire_owned().await.ok().map(Permit)
    }

    /// The agent took the call, and it has ended.
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

    /// The agent had no room for the call: there are no more places than those that others have.
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

    /// As many as can enter now.
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
