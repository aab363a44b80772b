//! A door as a NATS micro service: what `nats micro ls`, `info` and `stats` ask is answered beside it.
//!
//! The client library's own services leave their subject at once, and what was under way to them is lost. A door of
//! ours is drained; so here only the three questions are answered, in the words of the library's service.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{select_all, unfold};
use serde_json::{Value, json};
use sinew_protocol::Token;
use tokio::task::JoinSet;

use crate::random_token::random_token;
use crate::service::MeshServices;
use crate::stream::listen::MeshSubscription;
use crate::{Mesh, MeshError};

/// Operations of a micro service.
const VERBS: [&str; 3] = ["PING", "INFO", "STATS"];

/// Description that a service gives of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// For people.
    pub description: String,
    /// Any text; what is no `1.2.3` is told as `0.0.0`.
    pub version: String,
    /// More about it.
    pub metadata: BTreeMap<String, String>,
}

/// A service that is listed; until it is dropped.
#[derive(Debug)]
pub struct Listed {
    shared: Arc<SharedFigures>,
    _answering: JoinSet<()>,
}

struct SharedFigures {
    /// The name in subjects, the one that services share.
    name: String,
    /// This one of them.
    id: String,
    /// Where it is called, and in which group.
    subject: String,
    started: String,
    about: Box<dyn Fn() -> About + Send + Sync>,
    figures: Mutex<EndpointFigures>,
}

#[derive(Clone, Debug, Default)]
struct EndpointFigures {
    calls: u64,
    errors: u64,
    busy: Duration,
    last_error: String,
}

impl MeshServices<'_> {
    /// Lists the direct door of an agent. `about` is asked whenever somebody wants to know.
    pub async fn list_agent(
        self,
        agent: &str,
        about: impl Fn() -> About + Send + Sync + 'static,
    ) -> Result<Listed, MeshError> {
        let name = Token::of(agent).to_string();
        // Everybody may ask for the id: it must say nothing about other ids of this process.
        let id = random_token();
        let mut questions = Vec::new();
        for verb in VERBS {
            for below in [String::new(), format!(".{name}"), format!(".{name}.{id}")] {
                questions.push(self.mesh.listen(format!("$SRV.{verb}{below}")).await?);
            }
        }
        let door = sinew_protocol::subject::below(self.mesh.namespace(), &["rpc", &name]);
        let shared = Arc::new(SharedFigures {
            subject: door.trim_end_matches('>').to_owned() + "*.*",
            started: now(),
            about: Box::new(about),
            figures: Mutex::default(),
            name,
            id,
        });
        let mut answering = JoinSet::new();
        answering.spawn(answer(self.mesh.clone(), Arc::clone(&shared), questions));
        Ok(Listed { shared, _answering: answering })
    }
}

impl Listed {
    /// Counts a call that was answered.
    pub fn answered(&self, took: Duration, error: Option<&str>) {
        let mut figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.calls += 1;
        figures.busy = figures.busy.saturating_add(took);
        if let Some(error) = error {
            figures.errors += 1;
            error.clone_into(&mut figures.last_error);
        }
    }
}

async fn answer(mesh: Mesh, shared: Arc<SharedFigures>, questions: Vec<MeshSubscription>) {
    let questions = questions.into_iter().map(|listening| {
        Box::pin(unfold(listening, |mut listening| async { Some((listening.next().await?, listening)) }))
    });
    let mut questions = select_all(questions);
    while let Some(question) = questions.next().await {
        let Some(reply) = question.reply.filter(|reply| mesh.may_answer(reply)) else { continue };
        let Some(verb) = question.subject.split('.').nth(1) else { continue };
        let body = shared.said(verb).to_string();
        if let Err(error) = mesh.client().publish(reply, body.into()).await {
            tracing::debug!(%error, "a question about a service was not answered");
        }
    }
}

impl SharedFigures {
    fn said(&self, verb: &str) -> Value {
        let about = (self.about)();
        let mut said = json!({
            "type": format!("io.nats.micro.v1.{}_response", verb.to_lowercase()),
            "name": self.name,
            "id": self.id,
            "version": semantic(&about.version),
            "metadata": about.metadata,
        });
        match verb {
            "INFO" => {
                said["description"] = about.description.into();
                said["endpoints"] = json!([self.endpoint(json!({ "metadata": {} }))]);
            }
            "STATS" => {
                said["started"] = self.started.clone().into();
                said["endpoints"] = json!([self.endpoint(self.figures())]);
            }
            _ => {}
        }
        said
    }

    fn endpoint(&self, mut of: Value) -> Value {
        of["name"] = "a2a".into();
        of["subject"] = self.subject.clone().into();
        of["queue_group"] = self.name.clone().into();
        of
    }

    fn figures(&self) -> Value {
        let EndpointFigures { calls, errors, busy, last_error } =
            self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let busy = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        json!({
            "num_requests": calls,
            "num_errors": errors,
            "processing_time": busy,
            "average_processing_time": busy.checked_div(calls).unwrap_or_default(),
            "last_error": last_error,
        })
    }
}

impl fmt::Debug for SharedFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

/// Micro services have versions like `1.2.3`; what agents and workflows call their version may be anything.
pub fn semantic(version: &str) -> &str {
    let numbers: Vec<&str> = version.split('.').collect();
    let number = |text: &&str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_digit())
            && (*text == "0" || !text.starts_with('0'))
    };
    if numbers.len() == 3 && numbers.iter().all(number) { version } else { "0.0.0" }
}

/// The time, as services tell it.
fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    let ((year, month, day), (hour, minute, second)) = (now.to_calendar_date(), now.to_hms());
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_what_micro_services_take() {
        for (version, want) in [
            ("1.2.3", "1.2.3"),
            ("0.10.0", "0.10.0"),
            ("1.02.3", "0.0.0"),
            ("2024-05", "0.0.0"),
            ("", "0.0.0"),
        ] {
            assert_eq!(semantic(version), want);
        }
    }
}
