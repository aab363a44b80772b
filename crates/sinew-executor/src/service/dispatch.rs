//! Dispatch of one message of a stored commit: by the loop of the shard if possible, otherwise by
//! the outbox.

use sinew_shard::Outgoing;

use super::intake::Handle;
use super::node_calls::NodeCalls;
use super::outbox::Job;
use super::store_publisher::StorePublisher;

/// Sends one message of a stored commit; returns the job that remains for the outbox.
pub(super) async fn send(
    shared: &Handle,
    calls: &mut NodeCalls,
    stores: &mut StorePublisher,
    outgoing: Outgoing,
) -> Option<Job> {
    let rest = match outgoing {
        Outgoing::Task { call, meta, chain } if shared.is_node_request(&call) => {
            calls.send(call, meta, chain).await
        }
        Outgoing::CancelTask { call } => {
            calls.cancel(&call.task);
            stores.cancel(&call);
            Some(Outgoing::CancelTask { call })
        }
        outgoing => stores.send(outgoing).await,
    };
    rest.map(Job::Send)
}
