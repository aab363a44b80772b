//! Endpoints as NATS micro services: replies to `nats micro ls`, `info` and `stats`.
//!
//! The client library's own services unsubscribe immediately, and requests in flight are lost.
//! Endpoints of Sinew are drained, so only the three queries are answered here, in the format of
//! the library's service.
//!
//! Queries to all services are received once per connection, however many services it has: the
//! server sends a copy of a query for each subscription, which would multiply a flood of queries.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{select_all, unfold};
use sinew_protocol::Token;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::random_token::random_token;
use crate::service::MeshServices;
pub use crate::service_listing::About;
use crate::service_listing::{ListedService, ServiceListing};
use crate::stream::listen::MeshSubscription;
use crate::{Mesh, MeshError};

/// Operations of a micro service.
const VERBS: [&str; 3] = ["PING", "INFO", "STATS"];
/// Maximum number of replies in a burst, by one service or by all together.
const MAX_BURST: u32 = 64;
/// Mean time between replies beyond a burst; further queries are ignored.
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);

/// Listing of a service, until it is dropped.
#[derive(Debug)]
pub struct Listed {
    service: Arc<ListedService>,
    /// Services of the connection; this one is removed on drop.
    listing: Arc<ServiceListing>,
    /// Replies to queries to this service.
    _answering: JoinSet<()>,
    /// Replies to queries to all services of the connection.
    _answering_all: Arc<JoinSet<()>>,
}

impl MeshServices<'_> {
    /// Lists an agent's endpoint for direct calls. `about` is called for every query.
    pub async fn list_agent(
        self,
        agent: &str,
        about: impl Fn() -> About + Send + Sync + 'static,
    ) -> Result<Listed, MeshError> {
        let name = Token::of(agent).to_string();
        // Everyone can query the id, so it must not reveal other ids of this process.
        let id = random_token();
        let questions = hear_questions(self.mesh, &[format!(".{name}"), format!(".{name}.{id}")]).await?;
        let door = sinew_protocol::subject::below(self.mesh.namespace(), &["rpc", &name]);
        let service = Arc::new(ListedService {
            subject: door.trim_end_matches('>').to_owned() + "*.*",
            started: now(),
            about: Box::new(about),
            figures: Mutex::default(),
            name,
            id,
        });
        let listing = Arc::clone(self.mesh.listing());
        let answering_all = answer_all(&listing, self.mesh).await?;
        listing.services().insert(service.id.clone(), Arc::clone(&service));
        let mut answering = JoinSet::new();
        let own = Arc::clone(&service);
        answering.spawn(answer(self.mesh.clone(), questions, move || vec![Arc::clone(&own)]));
        Ok(Listed { service, listing, _answering: answering, _answering_all: answering_all })
    }
}

/// Returns the tasks that reply to queries to all services; starts them if none run.
async fn answer_all(listing: &Arc<ServiceListing>, mesh: &Mesh) -> Result<Arc<JoinSet<()>>, MeshError> {
    let mut answering = listing.answering.lock().await;
    if let Some(running) = answering.upgrade() {
        return Ok(running);
    }
    let questions = hear_questions(mesh, &[String::new()]).await?;
    let listing = Arc::clone(listing);
    let mut started = JoinSet::new();
    started.spawn(answer(mesh.clone(), questions, move || listing.services().values().cloned().collect()));
    let started = Arc::new(started);
    *answering = Arc::downgrade(&started);
    Ok(started)
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.listing.services().remove(&self.service.id);
    }
}

/// Subscribes to the three queries, each with these subject suffixes.
async fn hear_questions(mesh: &Mesh, ends: &[String]) -> Result<Vec<MeshSubscription>, MeshError> {
    let mut questions = Vec::new();
    for verb in VERBS {
        for end in ends {
            questions.push(mesh.listen(format!("$SRV.{verb}{end}")).await?);
        }
    }
    Ok(questions)
}

impl Listed {
    /// Returns the id under which the process reports its statistics.
    pub fn id(&self) -> &str {
        &self.service.id
    }

    /// Counts an answered call.
    pub fn answered(&self, took: Duration, error: Option<&str>) {
        let mut figures = self.service.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.calls += 1;
        figures.busy = figures.busy.saturating_add(took);
        if let Some(error) = error {
            figures.errors += 1;
            error.clone_into(&mut figures.last_error);
        }
    }
}

/// Replies to queries, once for each of `services`.
async fn answer(
    mesh: Mesh,
    questions: Vec<MeshSubscription>,
    services: impl Fn() -> Vec<Arc<ListedService>> + Send,
) {
    let questions = questions.into_iter().map(|listening| {
        Box::pin(unfold(listening, |mut listening| async { Some((listening.next().await?, listening)) }))
    });
    let mut questions = select_all(questions);
    let mut budget = AnswerBudget::full(Instant::now());
    while let Some(question) = questions.next().await {
        let Some(reply) = question.reply.filter(|reply| mesh.may_answer(reply)) else { continue };
        let Some(verb) = question.subject.split('.').nth(1) else { continue };
        if !budget.take(Instant::now()) {
            continue;
        }
        for service in services() {
            let body = service.said(verb).to_string();
            if let Err(error) = mesh.client().publish(reply.clone(), body.into()).await {
                tracing::debug!(%error, "cannot reply to a service query");
            }
        }
    }
}

/// Rate limit of replies: a flood of queries must not use up the connection.
struct AnswerBudget {
    left: u32,
    filled: Instant,
}

impl AnswerBudget {
    fn full(now: Instant) -> Self {
        Self { left: MAX_BURST, filled: now }
    }

    /// Takes one reply from the budget; returns false if it is exhausted.
    fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled);
        let earned = u32::try_from(elapsed.as_nanos() / ANSWER_INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if earned >= MAX_BURST - self.left {
            (self.left, self.filled) = (MAX_BURST, now);
        } else {
            self.left += earned;
            self.filled += ANSWER_INTERVAL * earned;
        }
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        is_left
    }
}

/// Returns the current time in the format of micro services.
fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    let ((year, month, day), (hour, minute, second)) = (now.to_calendar_date(), now.to_hms());
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_questions_is_answered_in_part() {
        let begin = Instant::now();
        let mut budget = AnswerBudget::full(begin);
        let mut answered = |millis: u64, asked: u32| {
            (0..asked).filter(|_| budget.take(begin + Duration::from_millis(millis))).count()
        };
        assert_eq!(answered(0, 1_000), 64);
        assert_eq!(answered(19, 1_000), 0, "nothing is earned yet");
        assert_eq!(answered(30, 1_000), 1);
        assert_eq!(answered(40, 1_000), 1, "what was left of an interval counts");
        assert_eq!(answered(3_600_000, 1_000), 64);
    }
}
