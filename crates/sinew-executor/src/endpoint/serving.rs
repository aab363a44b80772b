//! Deployed workflows as agents: opens and closes their endpoints and cards as workflows change.
//!
//! Every executor opens the endpoints of all workflows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sinew_mesh::log_limited;
use sinew_mesh::workflow::{Deployment, WorkflowVersion};
use sinew_protocol::card::{self, AgentKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::announce::CardBoard;
use super::{EndpointContext, EndpointKind, WorkflowEndpoints};

/// Interval of checks for gained or lost shards.
const LOOK: Duration = Duration::from_secs(1);

/// Serves endpoints and cards of deployed workflows until `stop`, then completes calls in progress.
/// `owned` contains the shards of this executor.
pub(crate) async fn serve(
    shared: Arc<EndpointContext>,
    owned: Arc<Mutex<Vec<u32>>>,
    stop: CancellationToken,
) {
    let endpoints = WorkflowEndpoints::new(Arc::clone(&shared), stop.clone());
    let mut workflows = shared.programs.workflows.clone();
    let mut cards = shared.cards.clone();
    let mut open: BTreeMap<String, CancellationToken> = BTreeMap::new();
    let mut serving = JoinSet::new();
    let mut board = CardBoard::new(Arc::clone(&shared), owned);
    let mut known: Option<BTreeMap<String, u64>> = None;
    loop {
        let deployed = workflows.list();
        let now = deployed.iter().map(|version| (version.deployment.name.clone(), version.seq)).collect();
        if let Some(before) = known.replace(now) {
            log_changes(&before, &deployed);
        }
        let calls = built_in_workflows(&shared);
        let wanted = deployed.iter().map(|version| (version.deployment.name.clone(), EndpointKind::Workflow));
        let wanted: BTreeMap<String, EndpointKind> = calls.into_iter().chain(wanted).collect();
        for (name, kind) in &wanted {
            if !open.contains_key(name) {
                let closed = stop.child_token();
                open.insert(name.clone(), closed.clone());
                serving.spawn(Arc::clone(&endpoints).serve(name.as_str().into(), *kind, closed));
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

/// Logs which workflows were deployed or removed since the last check.
fn log_changes(before: &BTreeMap<String, u64>, deployed: &[Arc<WorkflowVersion>]) {
    for version in deployed {
        let Deployment { name, digest, by, .. } = &version.deployment;
        if before.get(name) != Some(&version.seq) {
            log_limited!(20, info, workflow = name, version = digest, by, "workflow deployed");
        }
    }
    for name in before.keys().filter(|name| !deployed.iter().any(|one| one.deployment.name == **name)) {
        log_limited!(20, info, workflow = name, "workflow removed");
    }
}

/// Returns the names under which executions call agents and ask people.
fn built_in_workflows(shared: &EndpointContext) -> Vec<(String, EndpointKind)> {
    if !shared.programs.has_calls() {
        return Vec::new();
    }
    let cards = shared.cards.list();
    let agents = cards.iter().filter(|announced| card::kind(&announced.card) == AgentKind::Agent);
    let agents = agents.map(|announced| card::agent_call(&announced.card.name));
    agents.chain([card::PERSON_QUESTION.to_owned()]).map(|name| (name, EndpointKind::BuiltIn)).collect()
}
