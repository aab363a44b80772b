//! External agent on the mesh: its card is refreshed regularly, and announced as long as it is
//! available.

use std::sync::Arc;
use std::time::Duration;

use sinew_agent::{Agent, CancellationToken};
use sinew_mesh::Mesh;
use sinew_protocol::card::{input_schema, output_schema};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::bridge_file::BridgeSettings;
use crate::credentials::Credentials;
use crate::error::BridgeError;
use crate::outside_hosts::OutsideHosts;
use crate::outside_task::{OutsideAgent, begin_counts};
use crate::remote_card::{RemoteCard, fetch_card};
use crate::remote_client::RemoteClient;

/// Delays between attempts to fetch a card: the first and the maximum.
const FETCH_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Consecutive failed refreshes after which the agent is removed from the mesh.
const MAX_FAILED_LOOKS: u32 = 3;
/// Time for which a stopping bridge waits for its tasks. Other processes continue the remaining
/// ones.
const GRACE: Duration = Duration::from_secs(10);
/// Time by which tasks count as returned before they are.
const HALT_MARGIN: Duration = Duration::from_millis(500);

/// External agent with a valid card.
#[derive(Debug)]
pub struct Bridge {
    settings: Arc<BridgeSettings>,
    hosts: Arc<OutsideHosts>,
    credentials: Arc<Credentials>,
    card: RemoteCard,
}

/// Agent that is served for one version of the card.
struct ServedCard {
    card: RemoteCard,
    generation: CancellationToken,
}

impl Bridge {
    /// Reads the card of an external agent and waits while the agent is unreachable. Returns `None`
    /// if `stop` fires first. Fails if the card or the credentials cannot be used.
    pub async fn open(
        settings: BridgeSettings,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, BridgeError> {
        let hosts = Arc::new(OutsideHosts::new(&settings)?);
        let credentials = Arc::new(Credentials::new(settings.credentials.clone()));
        let mut wait = FETCH_BACKOFF.0;
        loop {
            let fetched = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                fetched = fetch_card(&settings, &hosts, &credentials) => fetched,
            };
            match fetched {
                Ok(card) => {
                    return Ok(Some(Self { settings: Arc::new(settings), hosts, credentials, card }));
                }
                Err(error @ BridgeError::Credentials { .. }) => return Err(error),
                Err(error) if error.may_pass() => {
                    tracing::warn!(%error, code = error.code(), "the external agent is not available yet; retrying");
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = sleep(wait) => {}
            }
            wait = (wait * 2).min(FETCH_BACKOFF.1);
        }
    }

    /// Returns the name of the agent on the mesh.
    pub fn name(&self) -> &str {
        &self.card.shown.name
    }

    /// Serves the agent until `stop` fires. Fails if the mesh rejects it.
    pub async fn serve(self, mesh: Mesh, stop: CancellationToken) -> Result<(), BridgeError> {
        begin_counts();
        let (mut serving, own_stop) = (JoinSet::new(), stop.child_token());
        let mut served = self.serve_cards(&mut serving, &mesh, &own_stop).await;
        // The agent of another version of the card must not continue alone after a failure.
        own_stop.cancel();
        while let Some(ended) = serving.join_next().await {
            served = served.and(agent_ended(ended));
        }
        served
    }

    /// Serves an agent for each version of the card until `stop` fires or an agent fails.
    async fn serve_cards(
        &self,
        serving: &mut JoinSet<Result<(), sinew_agent::AgentError>>,
        mesh: &Mesh,
        stop: &CancellationToken,
    ) -> Result<(), BridgeError> {
        let mut served = Some(self.begin(serving, mesh, self.card.clone(), stop));
        let (mut failed_looks, mut next_look) = (0, Instant::now() + self.settings.refresh);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(ended) = serving.join_next() => agent_ended(ended)?,
                () = sleep_until(next_look) => {
                    next_look = Instant::now() + self.settings.refresh;
                    let looked = tokio::select! {
                        biased;
                        // An unresponsive external agent must not delay the shutdown of a process.
                        () = stop.cancelled() => return Ok(()),
                        looked = fetch_card(&self.settings, &self.hosts, &self.credentials) => looked,
                    };
                    let name = self.name();
                    match looked {
                        Ok(card) => {
                            failed_looks = 0;
                            if served.as_ref().is_some_and(|served| served.card.digest == card.digest) {
                                continue;
                            }
                            tracing::info!(agent = name, "the card of the external agent changed");
                            let newer = self.begin(serving, mesh, self.named(card), stop);
                            // The new agent is started before the old one stops.
                            if let Some(old) = served.replace(newer) {
                                old.generation.cancel();
                            }
                        }
                        Err(error) => {
                            failed_looks += 1;
                            tracing::warn!(agent = name, %error, code = error.code(), "cannot refresh the card");
                            // An untrusted card removes the agent immediately.
                            let is_over = failed_looks >= MAX_FAILED_LOOKS || matches!(error, BridgeError::Untrusted { .. });
                            if let Some(old) = served.take_if(|_| is_over) {
                                tracing::warn!(agent = name, "the external agent is removed from the mesh");
                                old.generation.cancel();
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the card under the agent's name on the mesh, even if the external agent changed its
    /// name.
    fn named(&self, mut card: RemoteCard) -> RemoteCard {
        self.name().clone_into(&mut card.shown.name);
        card
    }

    fn begin(
        &self,
        serving: &mut JoinSet<Result<(), sinew_agent::AgentError>>,
        mesh: &Mesh,
        card: RemoteCard,
        stop: &CancellationToken,
    ) -> ServedCard {
        let (generation, halting) = (stop.child_token(), CancellationToken::new());
        let (ended, halts) = (generation.clone(), halting.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            sleep(GRACE.saturating_sub(HALT_MARGIN)).await;
            halts.cancel();
        });
        serving.spawn(self.agent(&card, halting).serve(mesh.clone(), generation.clone()));
        ServedCard { card, generation }
    }

    fn agent(&self, card: &RemoteCard, halting: CancellationToken) -> Agent {
        let shown = &card.shown;
        let (input, output) = (input_schema(shown).cloned(), output_schema(shown).cloned());
        let hosts = Arc::clone(&self.hosts);
        let outside = Arc::new(OutsideAgent {
            client: RemoteClient::new(card.endpoint.clone(), hosts, Arc::clone(&self.credentials)),
            settings: Arc::clone(&self.settings),
            has_input_schema: input.is_some(),
            has_output_schema: output.is_some(),
            halting,
        });
        let agent = Agent::dynamic(shown.name.as_str(), input, output, move |input, context| {
            Arc::clone(&outside).perform(input, context)
        });
        let agent = agent
            .description(shown.description.as_str())
            .version(shown.version.as_str())
            .concurrency(self.settings.concurrency)
            .timeout(self.settings.timeout)
            .grace(GRACE);
        shown.skills.iter().cloned().fold(agent, Agent::a2a_skill)
    }
}

fn agent_ended(
    ended: Result<Result<(), sinew_agent::AgentError>, tokio::task::JoinError>,
) -> Result<(), BridgeError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(sinew_agent::AgentError::Mesh(error))) => Err(error.into()),
        Ok(Err(error)) => Err(BridgeError::Agent { code: error.code(), reason: error.to_string() }),
        Err(error) => Err(BridgeError::died(&error)),
    }
}
