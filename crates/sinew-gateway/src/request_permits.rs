//! Permits of a request from the gateway's and the caller's limits, also for work that outlives its
//! client.

use std::sync::{Arc, Weak};

use axum::http::Extensions;
use tokio::sync::OwnedSemaphorePermit;

use crate::access::CallerPermit;

/// Permits of one request.
pub(crate) struct RequestPermits {
    _in_flight: OwnedSemaphorePermit,
    caller: CallerPermit,
    _body: Option<OwnedSemaphorePermit>,
}

impl RequestPermits {
    /// Combines the permits of the gateway and the caller with those of a large body that a page
    /// reads.
    pub(crate) fn new(
        in_flight: OwnedSemaphorePermit,
        caller: CallerPermit,
        body: Option<OwnedSemaphorePermit>,
    ) -> Arc<Self> {
        Arc::new(Self { _in_flight: in_flight, caller, _body: body })
    }

    /// Returns the permit from the caller's limits.
    pub(crate) fn caller(&self) -> &CallerPermit {
        &self.caller
    }
}

/// Weak reference to a request's permits. A stream may keep the request longer than it counts as
/// one, so this reference holds no permit.
#[derive(Clone, Default)]
pub(crate) struct WeakRequestPermits(Weak<RequestPermits>);

impl WeakRequestPermits {
    /// References these permits as long as another owner holds them.
    pub(crate) fn of(places: &Arc<RequestPermits>) -> Self {
        Self(Arc::downgrade(places))
    }

    /// Returns the reference in these extensions of a request.
    pub(crate) fn find(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Holds the permits for work that continues after the client has disconnected. Returns `None`
    /// if they were released.
    pub(crate) fn hold(&self) -> Option<Arc<RequestPermits>> {
        self.0.upgrade()
    }
}
