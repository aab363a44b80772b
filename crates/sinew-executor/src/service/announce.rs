//! Deployed workflows as agents: their cards on the mesh, their doors open.
//!
//! Every executor opens the doors of all workflows. A workflow's card is announced by one: the owner of the shard that
//! the workflow's name falls on. When that owner is gone, the next one announces before the card has grown old.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sinew_mesh::micro::About;
use sinew_mesh::workflow::WorkflowVersion;
use sinew_protocol::a2a::{A2A_VERSION, AgentCard, AgentInterface};
use sinew_protocol::card::{self, AgentKind, Announcement, CARD_TTL, Delivery, NATS_BINDING, Visualisation};
use sinew_protocol::{ExecutionId, Fault, Vocabulary};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Shared;
use super::door::{DoorKind, Doors};
use super::intake::Handle;
use crate::programs::NO_SUCH_WORKFLOW;

/// How often it is looked whether shards have come or gone.
const LOOK: Duration = Duration::from_secs(1);
/// How often a card is announced.
const EVERY: Duration = Duration::from_secs(CARD_TTL.as_secs() / 3);

/// Keeps doors and cards of deployed workflows until `stop`; then answers what is being asked no more.
pub(super) async fn serve(shared: Handle, owned: Arc<Mutex<Vec<u32>>>, stop: CancellationToken) {
    let doors = Doors::new(Arc::clone(&shared), stop.clone());
    let mut workflows = shared.programs.workflows.clone();
    let mut cards = shared.cards.clone();
    let mut open: BTreeMap<String, CancellationToken> = BTreeMap::new();
    let mut serving = JoinSet::new();
    let mut board = Board { shared, owned, announced: BTreeMap::new() };
    loop {
        let deployed = workflows.list();
        let calls = built_in_workflows(&board.shared);
        let wanted = deployed.iter().map(|version| (version.deployment.name.clone(), DoorKind::Workflow));
        let wanted: BTreeMap<String, DoorKind> = calls.into_iter().chain(wanted).collect();
        for (name, door) in &wanted {
            if !open.contains_key(name) {
                let closed = stop.child_token();
                open.insert(name.clone(), closed.clone());
                serving.spawn(Arc::clone(&doors).serve(name.as_str().into(), *door, closed));
            }
        }
        open.retain(|name, closed| {
            let there = wanted.contains_key(name);
            if !there {
                closed.cancel();
            }
            there
        });
        board.update(&deployed).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = workflows.changed() => {}
            () = cards.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        while serving.try_join_next().is_some() {}
    }
    while serving.join_next().await.is_some() {}
}

/// The names under which agents and people are asked by executions.
fn built_in_workflows(shared: &Shared) -> Vec<(String, DoorKind)> {
    if !shared.programs.has_calls() {
        return Vec::new();
    }
    let cards = shared.cards.list();
    let agents = cards.iter().filter(|announced| card::kind(&announced.card) == AgentKind::Agent);
    let agents = agents.map(|announced| card::agent_call(&announced.card.name));
    agents.chain([card::PERSON_QUESTION.to_owned()]).map(|name| (name, DoorKind::BuiltIn)).collect()
}

/// The cards that this executor announces.
struct Board {
    shared: Handle,
    owned: Arc<Mutex<Vec<u32>>>,
    /// By name: the version, and when to say it again.
    announced: BTreeMap<String, (u64, Instant)>,
}

impl Board {
    async fn update(&mut self, deployed: &[Arc<WorkflowVersion>]) {
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
                Err(fault) if fault.retryable => LOOK,
                Err(fault) => {
                    warn!(workflow = name, %fault, "a workflow cannot be announced");
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
                Err(error) => debug!(workflow = name, %error, "a card was not retracted yet"),
            }
        }
    }

    /// A card that is too large loses its drawing, which whoever wants it can make of the plan.
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

/// Returns the description of a workflow for `nats micro`: of the version that is deployed now.
pub(super) fn about(shared: &Shared, workflow: &str) -> About {
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

/// The card of a deployed workflow.
pub(super) async fn card(shared: &Shared, workflow: &str) -> Result<AgentCard, Fault> {
    let version = shared.programs.workflows.get(workflow);
    let missing = || Fault::invalid(NO_SUCH_WORKFLOW, "the workflow is deployed no more");
    let version = version.ok_or_else(missing)?;
    of(shared, &version).await
}

/// The card that was deployed with it, else one of its plan; in both an executor answers for it on this mesh.
async fn of(shared: &Shared, version: &WorkflowVersion) -> Result<AgentCard, Fault> {
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
    // No queue of the workflow's name is read: it is asked at its endpoint.
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
