//! A connection to one mesh: one namespace on one NATS account.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use rand::Rng as _;
use sinew_protocol::origin::ChangeOrigin;
use sinew_protocol::subject::Operation;
use sinew_protocol::{Subject, Token};
use tokio::sync::{OnceCell, watch};

use crate::denied::DeniedOperations;
use crate::layout::Layout;
use crate::random_token::random_token;
use crate::screen::ScreenedRoute;
use crate::service_listing::ServiceListing;

/// A connection to one mesh. Clones share it.
///
/// Each part of the mesh has a handle: [`journal`](Mesh::journal), [`commands`](Mesh::commands), [`tasks`](Mesh::tasks),
/// [`events`](Mesh::events), [`quarantine`](Mesh::quarantine), [`artifacts`](Mesh::artifacts), [`cards`](Mesh::cards),
/// [`workflows`](Mesh::workflows), [`records`](Mesh::records), [`history`](Mesh::history), [`fleet`](Mesh::fleet),
/// [`services`](Mesh::services) and [`admin`](Mesh::admin).
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<MeshState>,
    /// Caller in the subjects of calls and commands.
    caller: Arc<Token>,
    /// Origin of the changes that are stored through this handle; `None` if nobody names it.
    origin: Option<Arc<ChangeOrigin>>,
}

/// The current connection of a mesh.
pub(crate) struct Line {
    pub(crate) client: async_nats::Client,
    pub(crate) jetstream: Context,
    /// The screen between client and server, if the connection is screened.
    pub(crate) route: Option<Arc<ScreenedRoute>>,
}

/// Inboxes for replies to requests.
#[derive(Clone, Debug)]
pub(crate) struct ReplyInboxes {
    /// Prefix of every inbox; the caller may subscribe to subjects with it.
    pub(crate) prefix: String,
    /// Whether a lost connection is replaced by another one.
    pub(crate) renewed: bool,
}

struct MeshState {
    line: RwLock<Arc<Line>>,
    /// Number of connections so far.
    number: watch::Sender<u64>,
    inboxes: ReplyInboxes,
    namespace: String,
    layout: OnceCell<Layout>,
    denials: DeniedOperations,
    listing: Arc<ServiceListing>,
    /// Secret from which the keys of stored objects are derived.
    object_secret: OnceLock<[u8; 32]>,
}

impl Mesh {
    /// Creates a mesh with this namespace over an open connection; `caller` is the publisher. Only
    /// [`crate::Connect`] reports denied operations; here they end as missing replies.
    pub fn new(client: async_nats::Client, namespace: &str, caller: &str) -> Self {
        let jetstream = jetstream::new(client.clone());
        let inbox = client.new_inbox();
        let prefix = inbox.rsplit_once('.').map_or(inbox.as_str(), |(prefix, _)| prefix).to_owned();
        let inboxes = ReplyInboxes { prefix, renewed: false };
        let line = Line { client, jetstream, route: None };
        Self::over(line, inboxes, namespace, Token::of(caller), DeniedOperations::default())
    }

    pub(crate) fn over(
        line: Line,
        inboxes: ReplyInboxes,
        namespace: &str,
        caller: Token,
        denials: DeniedOperations,
    ) -> Self {
        let shared = MeshState {
            line: RwLock::new(Arc::new(line)),
            number: watch::Sender::new(0),
            inboxes,
            namespace: namespace.to_owned(),
            layout: OnceCell::new(),
            denials,
            listing: Arc::default(),
            object_secret: OnceLock::new(),
        };
        Self { shared: Arc::new(shared), caller: Arc::new(caller), origin: None }
    }

    /// Returns a handle on the same connection whose calls and commands name another caller. The
    /// server rejects them unless the user of the connection also has the rights of that caller.
    #[must_use]
    pub fn on_behalf_of(&self, caller: Token) -> Self {
        Self { shared: Arc::clone(&self.shared), caller: Arc::new(caller), origin: self.origin.clone() }
    }

    /// Returns a handle on the same connection whose changes state this origin: commands, deployments,
    /// keys and webhook triggers.
    #[must_use]
    pub fn with_origin(&self, origin: ChangeOrigin) -> Self {
        Self { origin: Some(Arc::new(origin)), ..self.clone() }
    }

    /// Adds the headers that state the origin of a change.
    pub fn state_origin(&self, headers: &mut async_nats::HeaderMap) {
        if let Some(origin) = &self.origin {
            for (name, value) in origin.headers(&self.caller) {
                headers.insert(name, value);
            }
        }
    }

    /// Returns whether credentials prove the caller of this connection: it may not send commands under
    /// another name.
    ///
    /// # Errors
    /// Fails if the server does not respond.
    pub async fn proves_caller(&self) -> Result<bool, crate::MeshError> {
        let id = Token::of("other");
        let caller = Token::of("-another caller-");
        let command = Subject::Command { shard: 0, operation: Operation::Cancel, caller, id };
        Ok(!self.may_publish(&self.subject(&command)).await?)
    }

    /// Returns the namespace as configured.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Returns the token that stands for this caller in subjects.
    pub fn caller(&self) -> &Token {
        &self.caller
    }

    /// Returns the current connection. It may be replaced later, see [`crate::connect`].
    pub fn client(&self) -> async_nats::Client {
        self.line().client.clone()
    }

    /// Returns why nothing can be sent now, in one sentence; `None` while connected.
    pub fn connection_problem(&self) -> Option<String> {
        match self.line().client.connection_state() {
            State::Connected => None,
            State::Pending | State::Disconnected => Some("disconnected from NATS".to_owned()),
        }
    }

    /// Returns the current connection for one message: a copy of the client costs more than the
    /// message.
    pub(crate) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.shared.line.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns JetStream over the current connection.
    pub(crate) fn jetstream(&self) -> Context {
        self.line().jetstream.clone()
    }

    /// Returns whether the connection is screened because a message broke the direct one.
    pub(crate) fn is_screened(&self) -> bool {
        self.line().route.is_some()
    }

    /// Returns the time since the screen replaced a message or was opened; `None` while the
    /// connection is direct.
    pub(crate) fn screen_calm(&self) -> Option<Duration> {
        self.line().route.as_ref().map(|route| route.calm())
    }

    /// Replaces the connection. All subscriptions move to the new one.
    pub(crate) fn renew(&self, line: Line) {
        let mut current = self.shared.line.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::new(line));
        drop(current);
        self.shared.number.send_modify(|number| *number += 1);
        drop(old);
    }

    /// Waits until the current connection is replaced.
    pub(crate) fn renewed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut line = self.line_number();
        line.mark_unchanged();
        async move {
            if line.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the number of the current connection.
    pub(crate) fn line_number(&self) -> watch::Receiver<u64> {
        self.shared.number.subscribe()
    }

    /// Returns how often the connection was established: replies to requests on an older one are
    /// lost.
    pub(crate) fn connections(&self) -> u64 {
        let connects = self.line().client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed);
        connects.wrapping_add(*self.shared.number.borrow() << 32)
    }

    /// Returns whether a lost connection is replaced by another one.
    pub(crate) fn is_renewed(&self) -> bool {
        self.shared.inboxes.renewed
    }

    /// Returns a subject for the reply to one request. It contains 128 random bits and shares
    /// nothing with other inboxes, so only the called peer knows it.
    pub(crate) fn reply_inbox(&self) -> String {
        format!("{}.{}", self.shared.inboxes.prefix, random_token())
    }

    /// Returns a handle that does not keep the connection open.
    pub(crate) fn downgrade(&self) -> WeakMesh {
        WeakMesh { shared: Arc::downgrade(&self.shared), caller: Arc::clone(&self.caller) }
    }

    pub(crate) fn layout_cell(&self) -> &OnceCell<Layout> {
        &self.shared.layout
    }

    /// Returns whether a reply may be published to this subject: to inboxes of callers, never to
    /// subjects of the mesh or of the server, to which the responder may publish and the caller may
    /// not.
    pub(crate) fn may_answer(&self, reply: &str) -> bool {
        let own = reply.strip_prefix(Token::of(&self.shared.namespace).as_str());
        !reply.starts_with('$') && !own.is_some_and(|rest| rest.starts_with('.'))
    }

    /// Derives the keys of stored objects from this secret. Processes that share it store the same
    /// object once. Without it, the secret is a random one of this connection.
    pub fn share_object_secret(&self, secret: [u8; 32]) {
        // The first secret stays, so that objects stored with it are found again.
        let _: Result<(), _> = self.shared.object_secret.set(secret);
    }

    pub(crate) fn object_secret(&self) -> &[u8; 32] {
        self.shared.object_secret.get_or_init(|| rand::rng().random())
    }

    /// Returns the services that are listed on this connection.
    pub(crate) fn listing(&self) -> &Arc<ServiceListing> {
        &self.shared.listing
    }

    pub(crate) fn denials(&self) -> &DeniedOperations {
        &self.shared.denials
    }

    /// Returns the full name of a subject in this mesh.
    pub fn subject(&self, subject: &Subject) -> String {
        subject.name(&self.shared.namespace)
    }
}

/// A [`Mesh`] that does not keep its connection open.
pub(crate) struct WeakMesh {
    shared: Weak<MeshState>,
    caller: Arc<Token>,
}

impl WeakMesh {
    /// Returns the mesh while it is in use.
    pub(crate) fn upgrade(&self) -> Option<Mesh> {
        Some(Mesh { shared: self.shared.upgrade()?, caller: Arc::clone(&self.caller), origin: None })
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh")
            .field("namespace", &self.shared.namespace)
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}
