//! A receiver that counts push notifications, and sometimes fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::http_server::{PlainRequest, ServerGuard, respond, serve};
use crate::Fallible;

/// Every n-th delivery is answered with an error, and must be retried.
const FAILING: u64 = 7;

/// Accepted deliveries.
#[derive(Default)]
pub(super) struct PushLedger {
    taken: Mutex<TakenPushes>,
    changed: Notify,
}

#[derive(Default)]
struct TakenPushes {
    count: u64,
    refused: u64,
    /// Numbers of events by stream.
    events: BTreeMap<u32, BTreeSet<u64>>,
}

impl PushLedger {
    fn taken(&self) -> std::sync::MutexGuard<'_, TakenPushes> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of received events of a stream.
    pub(super) fn events(&self, nth: u32) -> BTreeSet<u64> {
        self.taken().events.get(&nth).cloned().unwrap_or_default()
    }

    /// Returns the numbers of accepted deliveries, and of those answered with an error.
    pub(super) fn counts(&self) -> (u64, u64) {
        let taken = self.taken();
        (taken.count, taken.refused)
    }

    /// Waits until the last event of each stream was received.
    pub(super) async fn all_arrived(&self, expected: &BTreeMap<u32, u64>, until: Instant) {
        loop {
            let changed = self.changed.notified();
            if expected.iter().all(|(nth, last)| self.events(*nth).contains(last)) {
                return;
            }
            if timeout_at(until, changed).await.is_err() {
                return;
            }
        }
    }

    fn take(&self, request: &PlainRequest) -> Option<bool> {
        let nth: u32 = request.path.trim_start_matches('/').parse().ok()?;
        let number: u64 = request.headers.get("sinew-event")?.parse().ok()?;
        let mut taken = self.taken();
        if (taken.count + taken.refused) % FAILING == FAILING - 1 {
            taken.refused += 1;
            return Some(false);
        }
        taken.count += 1;
        taken.events.entry(nth).or_default().insert(number);
        drop(taken);
        self.changed.notify_waiters();
        Some(true)
    }
}

/// Serves the receiver. Returns its address.
pub(super) async fn receive_pushes(ledger: Arc<PushLedger>) -> Fallible<(String, ServerGuard)> {
    serve(move |request, mut stream| {
        let ledger = Arc::clone(&ledger);
        async move {
            let status = if ledger.take(&request)? { "200 OK" } else { "500 Internal Server Error" };
            respond(&mut stream, status, "text/plain", "").await
        }
    })
    .await
}
