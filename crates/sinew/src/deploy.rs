//! Workflows from files onto a mesh: plans by digest, and the name under which others find the latest.

use sinew_protocol::code;
use std::path::Path;

use serde::Serialize;
use sinew_dialects::Lowered;
use sinew_executor::local;
use sinew_mesh::Mesh;
use sinew_mesh::store::{Deployment, StoredPlan};
use sinew_plan::Plan;
use sinew_protocol::card::{AgentKind, Announcement, Visualisation};

use crate::drawing;
use crate::exit::{Exit, Failure};
use crate::load::Loaded;

/// A drawing larger than this is left out of the card: whoever wants it makes it of the plan.
const MOST_DRAWING: usize = 24 * 1024;

/// What was deployed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Deployed {
    /// The workflow.
    pub(crate) name: String,
    /// Its version: the digest of its plan.
    pub(crate) version: String,
    /// Its dialect.
    pub(crate) dialect: String,
    /// False if the mesh had this version as its latest already.
    pub(crate) new: bool,
}

/// Stores a plan under its digest.
pub(crate) async fn store(mesh: &Mesh, plan: &Plan, source: Option<&Path>) -> Result<String, Failure> {
    let stored = StoredPlan {
        dialect: plan.dialect.clone(),
        plan: serde_json::to_value(plan).unwrap_or_default(),
        source: source.map(|path| path.display().to_string()),
    };
    let stored = mesh.put_plan(&stored).await?;
    let digest = sinew_plan::digest(plan);
    if stored == digest {
        return Ok(digest);
    }
    let text = format!("plan '{}' is stored as {stored}, not as {digest}", plan.name);
    Err(Failure::new(Exit::Failed, code::FILES_HAVE_ERRORS.as_str(), text))
}

/// Deploys all workflows of a file. One that is deployed as it is already is left alone.
pub(crate) async fn deploy(mesh: &Mesh, loaded: &Loaded) -> Result<Vec<Deployed>, Failure> {
    // All or nothing, as far as the file goes.
    for lowered in &loaded.workflows {
        if lowered.warnings.has_errors() {
            return Err(Failure::diagnostics(lowered.warnings.clone()));
        }
        crate::load::program(loaded.dialect, lowered)?;
    }
    let mut deployed = Vec::new();
    for lowered in &loaded.workflows {
        let plan = &lowered.plan;
        let version = sinew_plan::digest(plan);
        let known = mesh.workflow(&plan.name).await?;
        let new = known.is_none_or(|known| known.deployment.digest != version);
        if new {
            store(mesh, plan, Some(&loaded.path)).await?;
            mesh.deploy(&deployment(mesh, lowered, &version)).await?;
        }
        deployed.push(Deployed { name: plan.name.clone(), version, dialect: plan.dialect.clone(), new });
    }
    Ok(deployed)
}

fn deployment(mesh: &Mesh, lowered: &Lowered, digest: &str) -> Deployment {
    let plan = &lowered.plan;
    let drawing = drawing::draw(plan, sinew_diagram::Direction::TopDown, None);
    let mermaid = Some(sinew_diagram::mermaid(&drawing)).filter(|text| text.len() <= MOST_DRAWING);
    let card = Announcement {
        name: plan.name.clone(),
        description: plan.description.clone(),
        version: plan.version.clone().unwrap_or_default(),
        kind: AgentKind::Workflow,
        input_schema: plan.input_schema.clone(),
        output_schema: plan.output_schema.clone(),
        visualisation: mermaid.clone().map(Visualisation::Mermaid),
        ..Announcement::default()
    };
    Deployment {
        name: plan.name.clone(),
        digest: digest.to_owned(),
        dialect: plan.dialect.clone(),
        description: plan.description.clone(),
        card: serde_json::to_value(card.card(mesh.namespace())).unwrap_or_default(),
        mermaid: mermaid.unwrap_or_default(),
        at: local::now(),
        by: crate::record::caller(mesh.caller()),
    }
}
