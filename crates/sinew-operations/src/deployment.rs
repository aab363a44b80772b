//! Deploys workflows from files to a mesh: plans by digest, and the name that identifies the
//! latest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sinew_dialects::Lowered;
use sinew_documents::execution::caller;
use sinew_documents::words;
use sinew_documents::workflow::Deployed;
use sinew_executor::client::ClientError;
use sinew_inspection::drawing;
use sinew_mesh::Mesh;
use sinew_mesh::card::Cards;
use sinew_mesh::workflow::{Deployment, PlanFile, PlanTexts, StoredPlan};
use sinew_plan::Plan;
use sinew_protocol::card::{self, AgentKind, Announcement, Visualisation};
use sinew_protocol::code;
use sinew_runtime::local;
use sinew_source::Diagnostics;

use crate::callee_check::missing_callees;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{MeshOperator, online};
use crate::workflow_file::{Loaded, Options, unique_names};
use crate::workflow_search::{find_workflows, listed_findings, nothing_found};

/// Maximum size of a drawing in a card; clients create larger ones from the plan.
const MOST_DRAWING: usize = 24 * 1024;

/// Maximum size of a workflow's source texts that are stored with its plan.
const MAX_TEXT_BYTES: usize = 2 << 20;

/// An agent or a workflow already has the name.
pub const NAME_TAKEN: &str = code::NAME_TAKEN.as_str();

/// A deployed workflow, with the findings of its check.
#[derive(Clone, Debug)]
pub struct CheckedDeployment {
    /// The workflow as a document.
    pub deployed: Deployed,
    /// Its findings, with the files that their places refer to.
    pub findings: Diagnostics,
}

/// Stores a plan under its digest, with its source texts.
pub async fn store(
    mesh: &Mesh,
    plan: &Plan,
    source: Option<&Path>,
    texts: Option<PlanTexts>,
) -> Result<String, Failure> {
    let digest = sinew_plan::digest(plan);
    // An existing plan keeps its source texts.
    if texts.is_none() && mesh.workflows().get_plan(&digest).await.is_ok() {
        return Ok(digest);
    }
    let stored = StoredPlan {
        dialect: plan.dialect.clone(),
        plan: serde_json::to_value(plan).unwrap_or_default(),
        source: source.map(|path| path.display().to_string()),
        texts,
    };
    let stored = mesh.workflows().put_plan(&stored).await?;
    if stored == digest {
        return Ok(digest);
    }
    let text = format!("plan '{}' is stored as {stored}, not as {digest}", plan.name);
    Err(Failure::new(FailureKind::Failed, code::FILES_HAVE_ERRORS.as_str(), text))
}

/// Deploys all workflows of a file. An unchanged workflow is skipped.
pub async fn deploy(mesh: &Mesh, loaded: &Loaded) -> Result<Vec<CheckedDeployment>, Failure> {
    deploy_all(mesh, std::slice::from_ref(loaded)).await
}

async fn deploy_file(mesh: &Mesh, cards: &Cards, loaded: &Loaded) -> Result<Vec<CheckedDeployment>, Failure> {
    // All workflows of the file are checked before the first is deployed.
    for lowered in &loaded.workflows {
        if lowered.warnings.has_errors() {
            return Err(Failure::diagnostics(lowered.warnings.clone()));
        }
        crate::workflow_file::program(loaded.dialect, lowered)?;
    }
    refuse_names_of_agents(cards, loaded)?;
    let mut deployed = Vec::new();
    for lowered in &loaded.workflows {
        let plan = &lowered.plan;
        let version = sinew_plan::digest(plan);
        let known = mesh.workflows().latest(&plan.name).await?;
        let new = known.as_ref().is_none_or(|known| known.deployment.digest != version);
        // Comments may change without changing the plan: people should see the current file.
        store(mesh, plan, Some(&loaded.path), texts_of(lowered)).await?;
        if new {
            // A paused workflow stays paused.
            let pause = known.and_then(|known| known.deployment.pause.clone());
            let next = Deployment { pause, ..deployment(mesh, loaded, lowered, &version) };
            mesh.workflows().deploy(&next).await?;
        }
        let document = Deployed {
            name: plan.name.clone(),
            version,
            dialect: plan.dialect.clone(),
            new,
            warnings: Vec::new(),
        };
        deployed.push(CheckedDeployment { deployed: document, findings: Diagnostics::default() });
    }
    Ok(deployed)
}

/// Returns a workflow's source texts with their findings, or `None` if they are unknown or too
/// long.
pub fn texts_of(lowered: &Lowered) -> Option<PlanTexts> {
    let files: Vec<PlanFile> = lowered
        .warnings
        .sources
        .files()
        .iter()
        .map(|file| PlanFile { name: file.name.clone(), text: file.text.to_string() })
        .collect();
    let bytes: usize = files.iter().map(|file| file.text.len()).sum();
    if files.is_empty() || bytes > MAX_TEXT_BYTES {
        return None;
    }
    let findings = listed_findings(&lowered.warnings).into_iter();
    let diagnostics = findings.filter_map(|finding| serde_json::to_value(finding).ok()).collect();
    Some(PlanTexts { files, diagnostics })
}

/// Reads workflow files; fails on the first with errors.
pub fn read_workflows(paths: &[PathBuf], options: &Options) -> Result<Vec<Loaded>, Failure> {
    let mut loaded = Vec::new();
    for file in find_workflows(paths, options)? {
        if file.diagnostics.has_errors() {
            return Err(Failure::diagnostics(file.diagnostics));
        }
        loaded.extend(file.loaded);
    }
    if loaded.is_empty() && !paths.iter().any(|path| path == Path::new("-")) {
        return Err(nothing_found(FailureKind::NotFound, paths));
    }
    unique_names(&loaded)?;
    Ok(loaded)
}

/// Deploys all workflows of the files.
pub async fn deploy_all(mesh: &Mesh, loaded: &[Loaded]) -> Result<Vec<CheckedDeployment>, Failure> {
    let cards = online(mesh).await?;
    let mut deployed = Vec::new();
    for file in loaded {
        deployed.extend(deploy_file(mesh, &cards, file).await?);
    }
    // The workflows may call each other, so they are checked against the mesh after all are
    // deployed.
    for (one, lowered) in deployed.iter_mut().zip(loaded.iter().flat_map(|file| &file.workflows)) {
        one.findings = callee_findings(mesh, &cards, lowered, &BTreeSet::new()).await?;
        one.deployed.warnings = listed_findings(&one.findings);
    }
    Ok(deployed)
}

/// Fails with the warnings about the workflows of the files, if there are any: those of their
/// files, and those about callees that neither the mesh nor the files have.
pub async fn refuse_warnings(mesh: &Mesh, loaded: &[Loaded]) -> Result<(), Failure> {
    let cards = online(mesh).await?;
    let all = loaded.iter().flat_map(|file| &file.workflows);
    let own: BTreeSet<&str> = all.clone().map(|lowered| lowered.plan.name.as_str()).collect();
    for lowered in all {
        let findings = callee_findings(mesh, &cards, lowered, &own).await?;
        if !findings.is_empty() {
            return Err(Failure::diagnostics(findings));
        }
    }
    Ok(())
}

/// Returns the findings of a file about a workflow, and those about its callees except for `own`.
async fn callee_findings(
    mesh: &Mesh,
    cards: &Cards,
    lowered: &Lowered,
    own: &BTreeSet<&str>,
) -> Result<Diagnostics, Failure> {
    let mut findings = lowered.warnings.clone();
    for missing in missing_callees(mesh, cards, &lowered.plan).await? {
        let callee = lowered.plan.nodes.get(missing.node).and_then(|node| node.agent.as_deref());
        if callee.is_none_or(|callee| !own.contains(callee)) {
            let place = lowered.places.get(missing.node).copied().flatten();
            findings.push(missing.finding(place));
        }
    }
    findings.sort();
    Ok(findings)
}

fn deployment(mesh: &Mesh, loaded: &Loaded, lowered: &Lowered, digest: &str) -> Deployment {
    let plan = &lowered.plan;
    let skills = loaded.dialect.card_skills(plan).into_iter();
    let drawing = drawing::draw(plan, sinew_diagram::Direction::TopDown, None);
    let mermaid = Some(sinew_diagram::mermaid(&drawing)).filter(|text| text.len() <= MOST_DRAWING);
    let announcement = Announcement {
        name: plan.name.clone(),
        description: plan.description.clone(),
        version: plan.version.clone().unwrap_or_default(),
        kind: AgentKind::Workflow,
        input_schema: loaded.dialect.card_input_schema(plan),
        output_schema: plan.output_schema.clone(),
        visualisation: mermaid.clone().map(Visualisation::Mermaid),
        skills: skills.filter_map(|skill| serde_json::from_value(skill).ok()).collect(),
        catalogue: loaded.dialect.card_catalogue(plan),
        ..Announcement::default()
    };
    Deployment {
        name: plan.name.clone(),
        digest: digest.to_owned(),
        dialect: plan.dialect.clone(),
        description: plan.description.clone(),
        card: serde_json::to_value(announcement.card(mesh.namespace())).unwrap_or_default(),
        mermaid: mermaid.unwrap_or_default(),
        at: local::now(),
        by: caller(mesh.caller()),
        author_version: plan.version.clone(),
        pause: None,
    }
}

/// Rejects a file with a workflow that has the name of an agent on the mesh, because callers could
/// not distinguish them.
fn refuse_names_of_agents(cards: &Cards, loaded: &Loaded) -> Result<(), Failure> {
    for lowered in &loaded.workflows {
        let name = &lowered.plan.name;
        if let Some(announced) = cards.get(name)
            && card::kind(&announced.card) != AgentKind::Workflow
        {
            let text = format!("'{name}' is the name of an agent on the mesh, so no workflow can have it");
            return Err(Failure::new(FailureKind::Conflict, NAME_TAKEN, text)
                .hint("rename the workflow, or stop the agent first"));
        }
    }
    Ok(())
}

/// Rejects agents with the names of deployed workflows.
pub async fn refuse_names_of_workflows<'a>(
    mesh: &Mesh,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Failure> {
    // Agents with their own credentials may not read workflows; their permissions keep the names
    // distinct.
    if !matches!(mesh.admin().rights().await, Ok(None)) {
        return Ok(());
    }
    for name in names {
        if mesh.workflows().latest(name).await?.is_some() {
            let text = format!("'{name}' is the name of a deployed workflow, so no agent can have it");
            return Err(Failure::new(FailureKind::Conflict, NAME_TAKEN, text)
                .hint(format!("rename the agent, or run: sinew workflow delete {}", words::shell(name))));
        }
    }
    Ok(())
}

/// Returns whether an argument names a deployed workflow rather than a file.
pub fn is_workflow_name(argument: &Path) -> bool {
    let text = argument.to_string_lossy();
    let name = text.split_once('@').map_or(text.as_ref(), |(name, _)| name);
    !argument.is_file() && text != "-" && !name.contains(['/', '.'])
}

/// Returns the name and version of a deployed workflow: the newest version, or the one with the
/// prefix `version`.
pub async fn find_deployed(
    remote: &MeshOperator,
    name: &str,
    version: Option<&str>,
) -> Result<(String, String), Failure> {
    let workflows = remote.workflows().await?;
    let Some(latest) = workflows.get(name) else {
        let known = workflows.list();
        let names = known.iter().map(|one| one.deployment.name.as_str());
        let failure = Failure::new(
            FailureKind::NotFound,
            code::NO_SUCH_WORKFLOW_DEPLOYED.as_str(),
            format!("no workflow '{name}' is deployed"),
        );
        return Err(match sinew_source::did_you_mean(name, names) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => failure.hint("deploy one with `sinew workflow deploy FILE`, or use a path to a file"),
        });
    };
    let Some(version) = version else { return Ok((name.to_owned(), latest.deployment.digest.clone())) };
    let versions = workflows.versions(name);
    let mut digests: Vec<&str> = versions.iter().map(|one| one.deployment.digest.as_str()).collect();
    digests.sort_unstable();
    digests.dedup();
    digests.retain(|digest| digest.starts_with(version));
    match digests.as_slice() {
        [one] => Ok((name.to_owned(), (*one).to_owned())),
        [] => Err(Failure::new(
            FailureKind::NotFound,
            code::NO_SUCH_WORKFLOW_DEPLOYED.as_str(),
            format!("workflow '{name}' has no version {version}"),
        )),
        _ => Err(Failure::usage(format!("'{version}' matches several versions of '{name}'"))),
    }
}

/// Reads a deployed workflow (`NAME` or `NAME@VERSION`) as if it came from a file.
pub async fn load_deployed(remote: &MeshOperator, argument: &Path) -> Result<Loaded, Failure> {
    let text = argument.to_string_lossy();
    let (name, version) = text.split_once('@').map_or((text.as_ref(), None), |(name, at)| (name, Some(at)));
    let (_, digest) = find_deployed(remote, name, version).await?;
    let program = remote.client.programs().by_digest(&digest).await.map_err(ClientError::Plan)?;
    let plan = program.graph.plan().clone();
    let dialect = sinew_dialects::by_name(&plan.dialect).ok_or_else(|| {
        Failure::usage(format!("this version of Sinew does not support the dialect '{}'", plan.dialect))
    })?;
    let places = vec![None; plan.nodes.len()];
    let lowered = Lowered { plan, places, warnings: Diagnostics::default(), agents: BTreeMap::new() };
    Ok(Loaded { path: argument.to_owned(), dialect, workflows: vec![lowered] })
}
