//! Agent cards: the agents that are online, as a live view of the stream of announcements.
//!
//! A card comes from a peer: it is checked before it is shown ([`check()`]), and an invalid card is
//! excluded and listed with the violated rule ([`Cards::refused`]). An agent without an
//! announcement for the time to live is offline: it leaves the view, and only
//! [`CardDirectory::offline`] still lists it. While the broker is unreachable, cards do not expire,
//! because missing announcements then have no meaning.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use dashmap::DashMap;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{CARD_TTL, is_expired};
use sinew_protocol::stream::{AGENTS, Stream};
use sinew_protocol::{Subject, Token};
use tokio::sync::watch;
use tokio::time::Instant;

pub use crate::card_check::{
    BadCard, LARGEST_CARD, LONGEST_NAME, LONGEST_TEXT, MOST_ENTRIES, MOST_SKILLS, check,
};

use crate::store::object;
use crate::stream::follow::{self, FollowedItem, Follower, Source, follow};
use crate::stream::pull::{answer, milliseconds, unreachable};
use crate::{Mesh, MeshError, log_limited};

/// Maximum number of refused cards that are kept for operators.
const MOST_REFUSED: usize = 1000;
/// Maximum number of agents listed as offline; the most recently seen come first.
const MAX_OFFLINE: usize = 1000;
/// Timeout for the removal of a card.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// An accepted card.
#[derive(Clone, Debug)]
pub struct AnnouncedCard {
    /// The card, cleaned.
    pub card: AgentCard,
    /// The bytes as the agent published them, for signature checks.
    pub raw: Bytes,
}

/// Last card of an agent that is offline and was not retired.
#[derive(Clone, Debug)]
pub struct OfflineCard {
    /// The card, cleaned.
    pub card: AgentCard,
    /// Time since its last announcement.
    pub age: Duration,
}

/// A refused card.
#[derive(Clone, Debug)]
pub struct RefusedCard {
    /// Agent under whose subject the card was published.
    pub agent: Token,
    /// The rule it breaks.
    pub reason: BadCard,
}

/// Cards of the agents of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct CardDirectory<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the cards of the agents of this mesh.
    pub fn cards(&self) -> CardDirectory<'_> {
        CardDirectory { mesh: self }
    }
}

impl CardDirectory<'_> {
    /// Announces an agent; must be repeated every
    /// [`CARD_INTERVAL`](sinew_protocol::card::CARD_INTERVAL).
    pub async fn announce(self, card: &AgentCard) -> Result<(), MeshError> {
        let agent = Token::of(&card.name);
        let body = serde_json::to_vec(card)
            .map_err(|error| MeshError::Malformed { what: "the card", reason: error.to_string() })?;
        // A card that readers would refuse must fail here, so that the agent's operator sees the
        // error.
        check(&agent, &body).map_err(|reason| MeshError::BadCard { agent: agent.to_string(), reason })?;
        let subject = self.mesh.subject(&Subject::Card { agent });
        object::store(self.mesh, "announce a card", subject, None, body.into()).await.map(drop)
    }

    /// Announces that an agent is offline, so that its card does not have to expire.
    pub async fn retract(self, agent: &str) -> Result<(), MeshError> {
        let subject = self.mesh.subject(&Subject::Card { agent: Token::of(agent) });
        object::store(self.mesh, "retract a card", subject, None, Bytes::new()).await.map(drop)
    }

    /// Returns the card of one agent, from any replica of the server; `None` if it is missing or
    /// refused. For users that may only read single cards.
    pub async fn get(self, agent: &Token) -> Result<Option<AgentCard>, MeshError> {
        let name = self.mesh.subject(&Subject::Card { agent: agent.clone() });
        let stored = self.mesh.stored(&stream_name("CARDS", self.mesh.namespace()), &name).await?;
        Ok(stored.filter(|message| !message.payload.is_empty()).and_then(|message| {
            let checked = check(agent, &message.payload);
            checked.inspect_err(|reason| log_limited!(warn, %agent, %reason, "rejected a card")).ok()
        }))
    }

    /// Returns the last cards of offline agents, by name: those that ended without retracting their
    /// card, until they are retired or the retention of the mesh has passed. Empty on a mesh that
    /// an older version provisioned, and for users that may not read them.
    pub async fn offline(self, online: &Cards) -> Result<Vec<OfflineCard>, MeshError> {
        let (namespace, stream) = (self.mesh.namespace(), stream_name(AGENTS, self.mesh.namespace()));
        let filter = sinew_protocol::subject::below(namespace, &["card"]);
        let read = format!("$JS.API.CONSUMER.CREATE.{stream}.look.{filter}");
        if !self.mesh.may_publish(&read).await? {
            return Ok(Vec::new());
        }
        if self.mesh.stream_info(&stream).await?.is_none() {
            return Ok(Vec::new());
        }
        let now = self.mesh.admin().server_clock().await?.now();
        let mut found = VecDeque::new();
        follow::sweep(self.mesh, &stream, filter, DeliverPolicy::All, |message| {
            let published = message.info().map_or(now, |info| milliseconds(info.published));
            let age = Duration::from_millis(now.saturating_sub(published));
            if let Some(Subject::Card { agent }) = Subject::parse(namespace, &message.subject)
                && online.by_token(&agent).is_none()
                && !message.headers.as_ref().is_some_and(follow::is_foreign)
                && let Ok(card) = check(&agent, &message.payload)
            {
                found.push_back(OfflineCard { card, age });
                if found.len() > MAX_OFFLINE {
                    found.pop_front();
                }
            }
            true
        })
        .await?;
        // An agent that was announced in the meantime is in the mirror, and now in the view.
        online.current().await?;
        let mut found = Vec::from(found);
        found.retain(|one| online.get(&one.card.name).is_none());
        found.sort_by(|a, b| a.card.name.cmp(&b.card.name));
        Ok(found)
    }

    /// Deletes the last card of an offline agent.
    pub async fn retire(self, agent: &Token) -> Result<(), MeshError> {
        const WHAT: &str = "retire an agent";
        let stream = stream_name(AGENTS, self.mesh.namespace());
        let subject = self.mesh.subject(&Subject::Card { agent: agent.clone() });
        let jetstream = self.mesh.jetstream();
        let purge = async {
            let handle =
                jetstream.get_stream_no_info(&stream).await.map_err(|error| unreachable(WHAT, &error))?;
            handle.purge().filter(subject).await.map_err(|error| unreachable(WHAT, &error))
        };
        let call = format!("$JS.API.STREAM.PURGE.{stream}");
        self.mesh.permitted(&call, answer(self.mesh, WHAT, RETIRE_TIMEOUT, purge)).await???;
        Ok(())
    }

    /// Returns whether this connection may read the card of one agent.
    pub async fn may_get(self, agent: &Token) -> Result<bool, MeshError> {
        let name = self.mesh.subject(&Subject::Card { agent: agent.clone() });
        let stream = stream_name("CARDS", self.mesh.namespace());
        let call = format!("$JS.API.DIRECT.GET.{stream}.{name}");
        Ok(self.mesh.rights().await?.is_none_or(|granted| granted.may_publish(&call)))
    }

    /// Follows the cards of the mesh.
    pub fn follow(self) -> Cards {
        self.follow_within(CARD_TTL)
    }

    /// Like [`CardDirectory::follow`], with another time to live.
    pub fn follow_within(self, ttl: Duration) -> Cards {
        let shared = Arc::new(SharedCards::default());
        let namespace = self.mesh.namespace();
        let source = Source {
            stream: stream_name("CARDS", namespace),
            filter: sinew_protocol::subject::below(namespace, &["card"]),
            from: DeliverPolicy::LastPerSubject,
            tick: (ttl / 10).clamp(Duration::from_millis(50), Duration::from_secs(1)),
        };
        let mut board = CardBoard {
            shared: Arc::clone(&shared),
            namespace: namespace.to_owned(),
            ttl,
            pass: 0,
            is_whole: false,
            seen: Instant::now(),
        };
        let following = follow(self.mesh.clone(), source, move |step| board.step(step));
        let changes = shared.version.subscribe();
        Cards { shared, changes, follower: Arc::new(following) }
    }
}

/// Returns the name of a stream of this kind.
pub(crate) fn stream_name(kind: &'static str, namespace: &str) -> String {
    let mut streams = sinew_protocol::stream::STREAMS.iter();
    streams.find(|stream| stream.kind == kind).map_or_else(
        || sinew_protocol::stream::bucket(namespace, kind),
        |stream: &Stream| stream.name(namespace),
    )
}

/// A live view of the agents that are online. Clones share it; it ends with the last clone.
#[derive(Clone)]
pub struct Cards {
    shared: Arc<SharedCards>,
    changes: watch::Receiver<u64>,
    follower: Arc<Follower>,
}

impl Cards {
    /// Waits until the view contains all cards that existed when it was created.
    pub async fn ready(&self) {
        self.follower.ready().await;
    }

    /// Waits until the view contains all cards that are stored now; an error if that is not known
    /// in time: then an agent without a card may still be online.
    pub async fn current(&self) -> Result<(), MeshError> {
        self.follower.current().await
    }

    /// Returns the card of the agent with this name.
    pub fn get(&self, name: &str) -> Option<Arc<AnnouncedCard>> {
        self.by_token(&Token::of(name))
    }

    /// Returns the card of the agent with this token.
    pub fn by_token(&self, agent: &Token) -> Option<Arc<AnnouncedCard>> {
        self.shared.entries.get(agent).map(|entry| Arc::clone(&entry.announced))
    }

    /// Returns the time since the agent's last announcement.
    pub fn age(&self, name: &str) -> Option<Duration> {
        self.shared.entries.get(&Token::of(name)).map(|entry| entry.heard.elapsed())
    }

    /// Returns all cards, by name.
    pub fn list(&self) -> Vec<Arc<AnnouncedCard>> {
        let mut all: Vec<_> = self.shared.entries.iter().map(|entry| Arc::clone(&entry.announced)).collect();
        all.sort_by(|a, b| a.card.name.cmp(&b.card.name));
        all
    }

    /// Returns the currently refused cards, each with the violated rule, by agent.
    pub fn refused(&self) -> Vec<RefusedCard> {
        let refused = lock(&self.shared.refused);
        refused
            .iter()
            .map(|(agent, kept)| RefusedCard { agent: agent.clone(), reason: kept.reason.clone() })
            .collect()
    }

    /// Returns the number of bad cards since the view was created; an unchanged repetition is not
    /// counted.
    pub fn refusals(&self) -> u64 {
        self.shared.refusals.load(Ordering::Relaxed)
    }

    /// Waits for a change since the last call on this handle: a card was added, changed or removed.
    pub async fn changed(&mut self) {
        let _gone = self.changes.changed().await;
    }

    /// Waits for an agent's card.
    pub async fn wait_for(&self, name: &str) -> Arc<AnnouncedCard> {
        // A separate receiver, so that waiting consumes no change of the caller's.
        let mut changes = self.shared.version.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(announced) = self.get(name) {
                return announced;
            }
            let _gone = changes.changed().await;
        }
    }
}

impl std::fmt::Debug for Cards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cards").field("agents", &self.shared.entries.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct SharedCards {
    entries: DashMap<Token, CardEntry>,
    refused: Mutex<BTreeMap<Token, KeptCards>>,
    refusals: AtomicU64,
    version: watch::Sender<u64>,
}

struct CardEntry {
    announced: Arc<AnnouncedCard>,
    heard: Instant,
    pass: u64,
}

struct KeptCards {
    reason: BadCard,
    raw: Bytes,
    heard: Instant,
}

/// A poisoned lock only means a panic elsewhere; the map is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writer of the view.
struct CardBoard {
    shared: Arc<SharedCards>,
    namespace: String,
    ttl: Duration,
    pass: u64,
    /// Whether a pass was read to its end.
    is_whole: bool,
    /// When the stream was last reachable.
    seen: Instant,
}

impl CardBoard {
    fn step(&mut self, step: FollowedItem) {
        match step {
            FollowedItem::Begin => self.pass += 1,
            FollowedItem::Message { subject, body, at, .. } => {
                if let Some(Subject::Card { agent }) = Subject::parse(&self.namespace, &subject) {
                    self.card(agent, &body, at);
                }
            }
            FollowedItem::Whole => {
                self.forgive(self.seen.elapsed());
                self.seen = Instant::now();
                self.is_whole = true;
            }
            FollowedItem::Tick => {
                // Before the first pass is complete, a missing card has no meaning.
                if self.is_whole {
                    self.seen = Instant::now();
                    self.expire();
                }
            }
        }
    }

    fn card(&self, agent: Token, body: &Bytes, at: Instant) {
        if body.is_empty() {
            lock(&self.shared.refused).remove(&agent);
            self.remove(&agent);
            return;
        }
        if let Some(mut entry) = self.shared.entries.get_mut(&agent)
            && entry.announced.raw == *body
        {
            entry.heard = entry.heard.max(at);
            entry.pass = self.pass;
            return;
        }
        match check(&agent, body) {
            Ok(card) => {
                // The payload is a slice of the connection's read buffer, which it would keep alive.
                let raw = Bytes::copy_from_slice(body);
                let entry = CardEntry {
                    announced: Arc::new(AnnouncedCard { card, raw }),
                    heard: at,
                    pass: self.pass,
                };
                lock(&self.shared.refused).remove(&agent);
                self.shared.entries.insert(agent, entry);
                self.bump();
            }
            Err(reason) => self.refuse(&agent, reason, body, at),
        }
    }

    /// The bad card has replaced the good one on the stream, so the agent counts as offline.
    fn refuse(&self, agent: &Token, reason: BadCard, body: &Bytes, at: Instant) {
        self.remove(agent);
        let raw = Bytes::copy_from_slice(&body[..body.len().min(LARGEST_CARD)]);
        let mut refused = lock(&self.shared.refused);
        if let Some(kept) = refused.get_mut(agent).filter(|kept| kept.raw == raw) {
            kept.heard = at;
            return;
        }
        self.shared.refusals.fetch_add(1, Ordering::Relaxed);
        log_limited!(warn, agent = agent.as_str(), %reason, "rejected a card");
        if refused.len() < MOST_REFUSED || refused.contains_key(agent) {
            refused.insert(agent.clone(), KeptCards { reason, raw, heard: at });
        }
        drop(refused);
        self.bump();
    }

    /// After an outage, extends the lifetime of cards that this pass has not seen by its duration.
    fn forgive(&self, blind: Duration) {
        for mut entry in self.shared.entries.iter_mut().filter(|entry| entry.pass != self.pass) {
            entry.heard += blind;
        }
    }

    fn expire(&self) {
        let before = self.shared.entries.len();
        self.shared.entries.retain(|_, entry| !is_expired(entry.heard.elapsed(), self.ttl));
        lock(&self.shared.refused).retain(|_, kept| !is_expired(kept.heard.elapsed(), self.ttl));
        if self.shared.entries.len() != before {
            self.bump();
        }
    }

    fn remove(&self, agent: &Token) {
        if self.shared.entries.remove(agent).is_some() {
            self.bump();
        }
    }

    fn bump(&self) {
        self.shared.version.send_modify(|version| *version += 1);
    }
}
