//! Tool calls in progress, so that a client can cancel one by its request id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::RequestId;

use crate::operations::{A2aOperations, OperationCall};

/// A call in progress: its caller and its task.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// Operations on what the caller may see.
    pub(super) operations: A2aOperations,
    pub(super) call: OperationCall,
    /// Id of the task that the call waits for.
    pub(super) task: String,
}

/// The open calls of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls(Arc<Mutex<HashMap<RequestId, OpenCall>>>);

/// An entry of [`OpenCalls`], removed on drop.
pub(super) struct OpenCallEntry {
    calls: OpenCalls,
    request: Option<RequestId>,
}

impl OpenCalls {
    /// Registers a call until its entry is dropped.
    pub(super) fn note(&self, request: RequestId, open: OpenCall) -> OpenCallEntry {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(request.clone(), open);
        OpenCallEntry { calls: self.clone(), request: Some(request) }
    }

    /// Removes and returns a call.
    pub(super) fn take(&self, request: &RequestId) -> Option<OpenCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(request)
    }
}

impl OpenCallEntry {
    /// Keeps the call registered, because its cancellation is expected.
    pub(super) fn leave(mut self) {
        self.request = None;
    }
}

impl Drop for OpenCallEntry {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.calls.take(&request);
        }
    }
}
