//! Cards of deployed workflows on the mesh.
//!
//! One executor announces a workflow's card: the owner of the shard that the workflow's name maps
//! to. If that owner stops, the next one announces the card before it expires.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sinew_mesh::micro::About;
use sinew_mesh::workflow::WorkflowVersion;
use sinew_protocol::a2a::{A2A_VERSION, AgentCard, AgentInterface};
use sinew_protocol::card::{self, AgentKind, Announcement, CARD_TTL, Delivery, NATS_BINDING, Visualisation};
use sinew_protocol::{ExecutionId, Fault, Vocabulary};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::EndpointContext;
use crate::programs::NO_SUCH_WORKFLOW;

/// Time after which a failed announcement is retried.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);
/// Interval between announcements of a card.
const EVERY: Duration = Duration::from_secs(CARD_TTL.as_secs() / 3);

/// The cards that this executor announces.
pub(super) struct CardBoard {
    shared: Arc<EndpointContext>,
    owned: Arc<Mutex<Vec<u32>>>,
    /// By name: the version, and when to announce it again.
    announced: BTreeMap<String, (u64, Instant)>,
}

impl CardBoard {
    pub(super) fn new(shared: Arc<EndpointContext>, owned: Arc<Mutex<Vec<u32>>>) -> Self {
        Self { shared, owned, announced: BTreeMap::new() }
    }

    /// Announces due cards of the deployed workflows, and retracts the cards of others.
    pub(super) async fn update(&mut self, deployed: &[Arc<WorkflowVersion>]) {
        let owned = self.owned.lock().map(|owned| owned.clone()).unwrap_or_default();
        let now = Instant::now();
        for version in deployed {
            let name = &version.deployment.name;
            let shard = ExecutionId::of(self.shared.mesh.namespace(), "", name).shard(self.shared.shards);
            if !owned.contains(&shard) {
                self.announced.remove(name);
                continue;
            }
            if self.announced.get(name).is_some_and(|(seq, due)| *seq == version.seq && *due > now) {
                continue;
            }
            let card = of(&self.shared, version).await;
            let said = match card {
                Ok(card) => self.announce(card).await,
                Err(fault) => Err(fault),
            };
            let wait = match said {
                Ok(()) => EVERY,
                Err(fault) if fault.retryable => ANNOUNCE_AGAIN,
                Err(fault) => {
                    warn!(workflow = name, %fault, "cannot announce a workflow");
                    EVERY
                }
            };
            self.announced.insert(name.clone(), (version.seq, now + wait));
        }
        let gone: Vec<String> = self
            .announced
            .keys()
            .filter(|name| !deployed.iter().any(|version| version.deployment.name == **name))
            .cloned()
            .collect();
        for name in gone {
            match self.shared.mesh.cards().retract(&name).await {
                Ok(()) => drop(self.announced.remove(&name)),
                Err(error) => debug!(workflow = name, %error, "cannot retract a card; retrying"),
            }
        }
    }

    /// Announces a card. If it is too large, its diagram is omitted: readers can generate it from
    /// the plan.
    async fn announce(&self, mut card: AgentCard) -> Result<(), Fault> {
        let mesh = &self.shared.mesh;
        match mesh.cards().announce(&card).await {
            Err(error) if !error.is_transient() && card::visualisation(&card).is_some() => {
                if let Some(extensions) = &mut card.capabilities.extensions {
                    extensions.retain(|extension| extension.uri != card::VISUALISATION);
                }
                Ok(mesh.cards().announce(&card).await?)
            }
            said => Ok(said?),
        }
    }
}

/// Returns the description of a workflow's deployed version for `nats micro`.
pub(super) fn about(shared: &EndpointContext, workflow: &str) -> About {
    let Some(version) = shared.programs.workflows.get(workflow) else { return About::default() };
    let deployment = &version.deployment;
    let metadata = [
        ("sinew_agent", workflow),
        ("sinew_type", "workflow"),
        ("sinew_namespace", shared.mesh.namespace()),
        ("sinew_version", &deployment.digest),
        ("a2a_version", A2A_VERSION),
    ];
    About {
        description: deployment.description.clone(),
        version: deployment.card["version"].as_str().unwrap_or_default().to_owned(),
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        data: Value::Null,
    }
}

/// Returns the card of a deployed workflow.
pub(super) async fn card(shared: &EndpointContext, workflow: &str) -> Result<AgentCard, Fault> {
    let version = shared.programs.workflows.get(workflow);
    let missing = || Fault::invalid(NO_SUCH_WORKFLOW, "the workflow is no longer deployed");
    let version = version.ok_or_else(missing)?;
    of(shared, &version).await
}

/// Returns the deployed card, else one generated from the plan; in both cases with the delivery of
/// this mesh.
async fn of(shared: &EndpointContext, version: &WorkflowVersion) -> Result<AgentCard, Fault> {
    let deployment = &version.deployment;
    let namespace = shared.mesh.namespace();
    let deployed = serde_json::from_value::<AgentCard>(deployment.card.clone()).ok();
    let mut card = if let Some(card) = deployed.filter(|card| card.name == deployment.name) {
        card
    } else {
        let program = shared.programs.by_digest(&deployment.digest).await?;
        let plan = program.graph.plan();
        let described =
            [&deployment.description, &plan.description].into_iter().find(|text| !text.is_empty());
        Announcement {
            name: deployment.name.clone(),
            description: described.unwrap_or(&deployment.name).clone(),
            version: plan.version.clone().unwrap_or_default(),
            kind: AgentKind::Workflow,
            input_schema: plan.input_schema.clone(),
            output_schema: plan.output_schema.clone(),
            visualisation: Some(deployment.mermaid.clone())
                .filter(|drawing| !drawing.is_empty())
                .map(Visualisation::Mermaid),
            delivery: Delivery::Direct,
            ..Announcement::default()
        }
        .card(namespace)
    };
    let here = AgentInterface::new(card::address(namespace, &deployment.name), NATS_BINDING);
    card.supported_interfaces.retain(|interface| interface.protocol_binding != NATS_BINDING);
    card.supported_interfaces.insert(0, here);
    card.capabilities.streaming = Some(true);
    card.capabilities.push_notifications = Some(false);
    let extensions = card.capabilities.extensions.get_or_insert_default();
    // Workflows have no queue: they are called at their endpoint.
    let mut delivery = card::direct_delivery();
    if let Some(params) = &mut delivery.params {
        params["vocabulary"] = match shared.vocabulary {
            Vocabulary::Current => "sam".into(),
            Vocabulary::Spec => "spec".into(),
        };
    }
    for extension in [card::workflow_type(), delivery] {
        extensions.retain(|other| other.uri != extension.uri);
        extensions.push(extension);
    }
    Ok(card)
}
