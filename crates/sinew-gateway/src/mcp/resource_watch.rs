//! Changes of a resource to which a client subscribed.

use rmcp::model::Resource;
use serde_json::json;
use sinew_protocol::a2a::{A2aError, CoreMethod, ErrorCode};
use sinew_protocol::jsonrpc::raw;
use tokio::sync::watch;

use super::offers::{OfferLists, find_resource};
use super::resource_uri::ResourceLocation;
use crate::operations::{A2aOperations, OperationCall, OperationReply, StreamItem, TaskStream};

/// A subscribed resource.
pub(super) enum ResourceWatch {
    /// A task: each of its events is a change.
    Task(TaskStream),
    /// A resource of an agent: a new card is a change.
    Offered { address: String, offers: watch::Receiver<OfferLists>, seen: Box<Option<Resource>> },
    /// A resource that no longer changes.
    Settled,
}

impl ResourceWatch {
    /// Subscribes to the resource at an address. Returns `None` if this caller has no such
    /// resource.
    pub(super) async fn open(
        operations: &A2aOperations,
        call: &OperationCall,
        offers: &watch::Receiver<OfferLists>,
        address: &str,
    ) -> Result<Option<Self>, A2aError> {
        match ResourceLocation::parse(address) {
            Some(ResourceLocation::Task(id)) => {
                let params = raw(&json!({"id": id}));
                match operations.perform(call, CoreMethod::SubscribeToTask, &params).await {
                    Ok(OperationReply::Stream(mut events)) => {
                        // The first event is the current task.
                        events.next().await;
                        Ok(Some(Self::Task(events)))
                    }
                    Ok(_) => Ok(Some(Self::Settled)),
                    Err(error) if error.code == ErrorCode::TaskNotFound => Ok(None),
                    Err(error) if error.code == ErrorCode::UnsupportedOperation => Ok(Some(Self::Settled)),
                    Err(error) => Err(error),
                }
            }
            Some(ResourceLocation::Artifact(_)) => Ok(Some(Self::Settled)),
            None if find_resource(operations, address).await?.is_some() => {
                let offers = offers.clone();
                let seen = Box::new(offered(&offers.borrow(), address));
                Ok(Some(Self::Offered { address: address.to_owned(), offers, seen }))
            }
            None => Ok(None),
        }
    }

    /// Waits for the next change; never returns when no further change is possible.
    pub(super) async fn changed(&mut self) {
        loop {
            match self {
                Self::Task(events) => match events.next().await {
                    Some(StreamItem::Event { .. }) => return,
                    Some(StreamItem::Failed(_)) | None => *self = Self::Settled,
                },
                Self::Offered { address, offers, seen } => {
                    if offers.changed().await.is_err() {
                        *self = Self::Settled;
                        continue;
                    }
                    let now = offered(&offers.borrow_and_update(), address);
                    if now != **seen {
                        **seen = now;
                        return;
                    }
                }
                Self::Settled => std::future::pending().await,
            }
        }
    }
}

/// Returns the list entry of a resource.
fn offered(lists: &OfferLists, address: &str) -> Option<Resource> {
    lists.resources.iter().find(|resource| resource.uri == address).cloned()
}
