//! Notifications of changed lists and resources.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::service::{Peer, RoleServer, ServiceError, SubscriptionContext};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::offers::OfferLists;
use super::resource_watch::ResourceWatch;
use crate::operations::{A2aOperations, OperationCall};

/// Lists that have changed.
#[derive(Clone, Copy, Debug)]
struct ListChanges {
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl ListChanges {
    fn between(before: &OfferLists, now: &OfferLists) -> Self {
        Self {
            tools: before.tools != now.tools,
            prompts: before.prompts != now.prompts,
            resources: before.resources != now.resources || before.templates != now.templates,
        }
    }
}

/// Notifies a client of changed lists until `gone` is cancelled.
pub(super) async fn tell_lists(
    peer: Peer<RoleServer>,
    mut offers: watch::Receiver<OfferLists>,
    gone: CancellationToken,
) {
    let mut seen = offers.borrow_and_update().clone();
    loop {
        let changed = tokio::select! {
            () = gone.cancelled() => return,
            changed = offers.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        let now = offers.borrow_and_update().clone();
        let changes = ListChanges::between(&std::mem::replace(&mut seen, now.clone()), &now);
        let told = async {
            if changes.tools {
                peer.notify_tool_list_changed().await?;
            }
            if changes.prompts {
                peer.notify_prompt_list_changed().await?;
            }
            if changes.resources {
                peer.notify_resource_list_changed().await?;
            }
            Ok::<_, ServiceError>(())
        };
        if told.await.is_err() {
            return;
        }
    }
}

/// Sends a subscriber the requested notifications until it cancels or disconnects.
pub(super) async fn serve_subscription(
    context: SubscriptionContext,
    operations: &A2aOperations,
    call: &OperationCall,
    mut offers: watch::Receiver<OfferLists>,
) {
    let mut seen = offers.borrow_and_update().clone();
    let mut changes = FuturesUnordered::new();
    for address in context.accepted().resource_subscriptions.iter().flatten() {
        // A resource that this caller cannot see never changes.
        if let Ok(Some(opened)) = ResourceWatch::open(operations, call, &offers, address).await {
            changes.push(next_change(address.clone(), opened));
        }
    }
    loop {
        let is_there = tokio::select! {
            () = context.cancelled() => return,
            Some((address, opened)) = changes.next() => {
                let told = context.sink().notify_resource_updated(address.clone()).await;
                changes.push(next_change(address, opened));
                told.is_ok()
            }
            changed = offers.changed() => {
                let now = offers.borrow_and_update().clone();
                let lists = ListChanges::between(&std::mem::replace(&mut seen, now.clone()), &now);
                changed.is_ok() && tell_changes(&context, lists).await
            }
        };
        if !is_there {
            return;
        }
    }
}

/// Notifies a subscriber of the changed lists that it requested; returns whether it is still
/// connected.
async fn tell_changes(context: &SubscriptionContext, changes: ListChanges) -> bool {
    let (sink, accepted) = (context.sink(), context.accepted());
    let wants = |accepted: Option<bool>| accepted == Some(true);
    if changes.tools && wants(accepted.tools_list_changed) && sink.notify_tool_list_changed().await.is_err() {
        return false;
    }
    if changes.prompts
        && wants(accepted.prompts_list_changed)
        && sink.notify_prompt_list_changed().await.is_err()
    {
        return false;
    }
    !changes.resources
        || !wants(accepted.resources_list_changed)
        || sink.notify_resource_list_changed().await.is_ok()
}

/// Waits for the next change of a resource, and returns the watch.
async fn next_change(address: String, mut opened: ResourceWatch) -> (String, ResourceWatch) {
    opened.changed().await;
    (address, opened)
}
