//! State shared by the MCP servers of all clients.

use std::time::Duration;

use sinew_protocol::a2a::Task;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::agent_call::fetch_results;
use super::drain_tokens::DrainTokens;
use super::offers::OfferLists;
use crate::access::CallerIdentity;
use crate::file_link::FileLinks;
use crate::operations::A2aOperations;
use crate::tool_mode::ToolMode;

/// Changes of the mesh within this time are reported together.
const GATHER: Duration = Duration::from_millis(200);

/// State shared by the servers of all clients.
#[derive(Debug)]
pub(crate) struct McpShared {
    pub(super) operations: A2aOperations,
    /// Caller of requests over pipes; `None` if each request has its own.
    pub(super) pipe_caller: Option<CallerIdentity>,
    /// Address of the gateway's console, where people answer questions; `None` without a console.
    pub(super) console: Option<String>,
    /// What a tool list contains if the address of a client selects nothing.
    pub(super) tools: ToolMode,
    /// Creates addresses of files; `None` for clients over pipes, which read resources.
    links: Option<FileLinks>,
    /// Ends open streams and calls when the gateway drains.
    pub(super) drain: DrainTokens,
    /// The most recently reported offers.
    pub(super) offers: watch::Receiver<OfferLists>,
    _follower: AbortOnDropHandle<()>,
}

impl McpShared {
    /// Creates the state, which follows the cards of the mesh until it is dropped.
    pub(crate) fn new(
        operations: A2aOperations,
        pipe_caller: Option<CallerIdentity>,
        drain: DrainTokens,
    ) -> Self {
        let mut cards = operations.cards();
        let (sender, offers) = watch::channel(OfferLists::of(&operations));
        let offered = operations.clone();
        let follower = tokio::spawn(async move {
            loop {
                cards.changed().await;
                tokio::time::sleep(GATHER).await;
                let now = OfferLists::of(&offered);
                sender.send_if_modified(|offers| {
                    let is_new = *offers != now;
                    *offers = now;
                    is_new
                });
            }
        });
        let follower = AbortOnDropHandle::new(follower);
        Self {
            operations,
            pipe_caller,
            console: None,
            links: None,
            tools: ToolMode::default(),
            drain,
            offers,
            _follower: follower,
        }
    }

    /// Sets the address of the console, where people answer questions.
    pub(crate) fn with_console(self, console: Option<String>) -> Self {
        Self { console, ..self }
    }

    /// Sets what tool lists contain by default.
    pub(crate) fn with_tools(self, tools: ToolMode) -> Self {
        Self { tools, ..self }
    }

    /// Sets the addresses of files in results.
    pub(crate) fn with_links(self, links: Option<FileLinks>) -> Self {
        Self { links, ..self }
    }

    /// Replaces results in the artifact store by their data, unless they are too large, and other
    /// addresses of the mesh by addresses that clients can open.
    pub(super) async fn show_files(&self, operations: &A2aOperations, task: &mut Task) {
        fetch_results(operations, task).await;
        if let Some(links) = &self.links {
            links.in_task(task);
        }
    }
}
