//! Tool calls in progress, so that a client can cancel one by its request id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::model::RequestId;
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;
use sinew_protocol::a2a::{A2aError, CoreMethod, ErrorCode};
use sinew_protocol::jsonrpc::raw;
use tokio::runtime::Handle;

use super::http_endpoint::SESSION_HEADER;
use crate::operations::{A2aOperations, OperationCall};

/// Delay between attempts to cancel a task that has just started.
const CANCEL_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of attempts to cancel a task.
const CANCEL_TRIES: u32 = 25;

/// A call in progress: its caller and its task.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// Operations on what the caller may see.
    pub(super) operations: A2aOperations,
    pub(super) call: OperationCall,
    /// Id of the task that the call waits for.
    pub(super) task: String,
}

impl OpenCall {
    /// Cancels the task of the call.
    pub(super) async fn cancel(self) {
        for _ in 0..CANCEL_TRIES {
            match cancel_task(&self.operations, &self.call, &self.task).await {
                // The start may still be in progress.
                Err(error) if error.code == ErrorCode::TaskNotFound => {
                    tokio::time::sleep(CANCEL_PAUSE).await;
                }
                Err(error) => return tracing::debug!(task = self.task, %error, "cannot cancel a task"),
                Ok(()) => return,
            }
        }
    }
}

/// Cancels a task of a caller.
pub(super) async fn cancel_task(
    operations: &A2aOperations,
    call: &OperationCall,
    task: &str,
) -> Result<(), A2aError> {
    let params = raw(&json!({"id": task}));
    operations.perform(call, CoreMethod::CancelTask, &params).await.map(drop)
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

/// Cancels the task of a call if its client disconnects before the answer. This holds over HTTP
/// without a session, where closing the connection is the cancellation (MCP 2026-07-28,
/// basic/patterns/cancellation), unless the client can find the task again.
pub(super) struct ConnectedCall(Option<OpenCall>);

impl ConnectedCall {
    /// Returns the guard of a call, which is dropped if the client disconnects.
    pub(super) fn of(context: &RequestContext<RoleServer>, is_found_again: bool, open: &OpenCall) -> Self {
        let parts = context.extensions.get::<Parts>();
        let has_session = parts.is_none_or(|parts| parts.headers.contains_key(SESSION_HEADER));
        Self((!has_session && !is_found_again).then(|| open.clone()))
    }

    /// Keeps the task: the client has its answer.
    pub(super) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for ConnectedCall {
    fn drop(&mut self) {
        // Without a runtime the process is ending, and the task continues.
        if let (Some(open), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(open.cancel());
        }
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
