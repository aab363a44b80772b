//! Queries to a shard's owner: received and answered outside its loop, processed between rounds.
//!
//! A connection can send queries faster than an owner can answer them. So the loop processes a
//! bounded number of queries between two rounds of work and copies only the data for the answer; a
//! separate task encodes and sends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sinew_mesh::query::{Answer, ReceivedQuery, ShardQueries};
use sinew_protocol::journal::Verdict;
use sinew_protocol::query::{Query, QueryError, Summary};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::debug;

use sinew_shard::{ShardState, StoredExecution};

/// Queries that wait for the loop; further ones wait in the connection, which drops them when it is
/// full.
const MAX_WAITING_QUESTIONS: usize = 256;
/// Replies that wait to be sent. Each may be as large as a record.
const MAX_WAITING_ANSWERS: usize = 8;
/// Queries that the loop handles between two rounds of work.
const MAX_TURN_QUESTIONS: usize = 64;
/// Time after which the loop handles no further query before the next round of work.
const MAX_TURN_TIME: Duration = Duration::from_millis(5);

/// A reply before it is encoded.
pub(super) enum AnswerDraft {
    /// The open executions; shared by all queries of one turn.
    Executions(Arc<Vec<Summary>>),
    /// One execution.
    Record(Box<StoredExecution>),
    /// Verdicts on commands.
    Verdicts(Vec<Verdict>),
    /// Status of the owner.
    Status(Value),
    /// Whether the activation of a task failed or was cancelled.
    HasTaskFailed(bool),
    /// The query has no result.
    Error(QueryError),
}

impl AnswerDraft {
    /// Returns the reply of the owner of a shard. `rows` caches the open executions for the queries
    /// of one turn.
    pub(super) fn of(
        query: &Query,
        state: &mut ShardState,
        rows: &mut Option<Arc<Vec<Summary>>>,
        status: &dyn Fn(&ShardState) -> Value,
    ) -> Self {
        let not_found = Self::Error(QueryError::NotFound);
        match query {
            Query::List {} => {
                Self::Executions(Arc::clone(rows.get_or_insert_with(|| Arc::new(state.summaries()))))
            }
            Query::Get(execution) => {
                state.shown(execution).map_or(not_found, |stored| Self::Record(Box::new(stored)))
            }
            Query::Verdicts(execution) => Self::Verdicts(state.verdicts_of(execution)),
            Query::Status {} => Self::Status(status(state)),
            Query::HasTaskFailed(calling) => {
                state.has_task_failed(calling).map_or(not_found, Self::HasTaskFailed)
            }
        }
    }

    fn encode(self) -> Answer {
        match self {
            Self::Executions(rows) => Answer::Executions(Arc::unwrap_or_clone(rows)),
            Self::Record(stored) => Answer::Record(stored.record().encode()),
            Self::Verdicts(verdicts) => Answer::Verdicts(verdicts),
            Self::Status(status) => Answer::Status(status),
            Self::HasTaskFailed(has_failed) => Answer::HasTaskFailed(has_failed),
            Self::Error(error) => Answer::Error(error),
        }
    }
}

/// Server of the queries to one shard.
pub(super) struct QueryServer {
    questions: mpsc::Receiver<ReceivedQuery>,
    answers: mpsc::Sender<(ReceivedQuery, AnswerDraft)>,
    /// Reads queries and sends replies; aborted on drop.
    _tasks: JoinSet<()>,
}

/// A query with a permit for its reply.
pub(super) struct OpenQuestion {
    pub(super) asked: ReceivedQuery,
    place: mpsc::OwnedPermit<(ReceivedQuery, AnswerDraft)>,
}

impl OpenQuestion {
    /// Passes the reply on for encoding and sending.
    pub(super) fn answer(self, draft: AnswerDraft) {
        self.place.send((self.asked, draft));
    }
}

impl QueryServer {
    /// Starts the server of these queries.
    pub(super) fn new(queries: ShardQueries) -> Self {
        let (asks, questions) = mpsc::channel(MAX_WAITING_QUESTIONS);
        let (answers, drafts) = mpsc::channel(MAX_WAITING_ANSWERS);
        let mut tasks = JoinSet::new();
        tasks.spawn(read_questions(queries, asks));
        tasks.spawn(send_answers(drafts));
        Self { questions, answers, _tasks: tasks }
    }

    /// Waits for a query; `None` once the connection is closed. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<OpenQuestion> {
        let place = self.answers.clone().reserve_owned().await.ok()?;
        let asked = self.questions.recv().await?;
        Some(OpenQuestion { asked, place })
    }

    /// Returns a query that has already arrived, if a permit for its reply is available.
    fn ready(&mut self) -> Option<OpenQuestion> {
        let place = self.answers.clone().try_reserve_owned().ok()?;
        let asked = self.questions.try_recv().ok()?;
        Some(OpenQuestion { asked, place })
    }

    /// Handles the queries of one turn, starting with `first`.
    pub(super) fn turn(&mut self, first: Option<OpenQuestion>, mut answer: impl FnMut(OpenQuestion)) {
        let began = Instant::now();
        let mut first = first;
        for _ in 0..MAX_TURN_QUESTIONS {
            let Some(question) = first.take().or_else(|| self.ready()) else { return };
            answer(question);
            if began.elapsed() > MAX_TURN_TIME {
                return;
            }
        }
    }
}

async fn read_questions(mut queries: ShardQueries, asks: mpsc::Sender<ReceivedQuery>) {
    while let Some(asked) = queries.next().await {
        if asks.send(asked).await.is_err() {
            return;
        }
    }
}

async fn send_answers(mut drafts: mpsc::Receiver<(ReceivedQuery, AnswerDraft)>) {
    while let Some((asked, draft)) = drafts.recv().await {
        // A record may have hundreds of megabytes, so it is encoded on a blocking thread.
        let Ok(answer) = tokio::task::spawn_blocking(move || draft.encode()).await else { continue };
        if let Err(error) = asked.answer(answer).await {
            debug!(%error, "cannot answer a query");
        }
    }
}
