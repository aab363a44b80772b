//! Places that a request takes among all requests and among those of its caller, and work that outlives its client.

use std::sync::{Arc, Weak};

use axum::http::Extensions;
use tokio::sync::OwnedSemaphorePermit;

use crate::access::CallerPermit;

/// Places of one request.
pub(crate) struct RequestPermits {
    _in_flight: OwnedSemaphorePermit,
    caller: CallerPermit,
    _body: Option<OwnedSemaphorePermit>,
}

impl RequestPermits {
    /// Places among the requests of the gateway and of the caller, and those of a large body that a page reads.
    pub(crate) fn new(
        in_flight: OwnedSemaphorePermit,
        caller: CallerPermit,
        body: Option<OwnedSemaphorePermit>,
    ) -> Arc<Self> {
        Arc::new(Self { _in_flight: in_flight, caller, _body: body })
    }

    /// Place among the requests of the caller.
    pub(crate) fn caller(&self) -> &CallerPermit {
        &self.caller
    }
}

/// Finds the places of a request from where it is answered. A stream may keep the request for longer than it counts as one, so
/// this alone holds no place.
#[derive(Clone, Default)]
pub(crate) struct WeakRequestPermits(Weak<RequestPermits>);

impl WeakRequestPermits {
    /// Finds these places as long as somebody holds them.
    pub(crate) fn of(places: &Arc<RequestPermits>) -> Self {
        Self(Arc::downgrade(places))
    }

    /// Finds the places of the request with these extensions.
    pub(crate) fn find(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Holds the places, for work that goes on when the client has gone. `None` if nobody holds them any more.
    pub(crate) fn hold(&self) -> Option<Arc<RequestPermits>> {
        self.0.upgrade()
    }
}
