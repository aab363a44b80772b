//! Plans by digest, and deployed workflows: a live view of names with their versions.
//!
//! A plan is stored once under the sha256 of its canonical JSON and verified at every read. A
//! deployment assigns a digest to a name; executions keep the digest that they started with.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::artifact::sha256;
use sinew_protocol::deployment::{MAX_DEPLOYMENT, is_digest};
use sinew_protocol::stream::PLANS;
use sinew_protocol::unique_keys::read_unique_within;
use sinew_protocol::{Subject, Token};
use tokio::sync::watch;

pub use sinew_protocol::deployment::Deployment;

use crate::store::card::stream_name;
use crate::store::object::{self, ObjectBucket, digest_of};
use crate::stream::follow::{FollowedItem, Follower, Source, follow};
use crate::stream::pull::redirected;
use crate::stream::stored::MessageQuery;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

/// Maximum number of versions of a workflow.
pub const MOST_VERSIONS: usize = 16;

/// A plan as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredPlan {
    /// The dialect that lowered it, whose adapter executes it.
    pub dialect: String,
    /// The plan.
    pub plan: Value,
    /// Its source file, for people; not covered by the digest.
    #[serde(default)]
    pub source: Option<String>,
    /// Source texts, for people; not covered by the digest. `None` if they are unknown or too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<PlanTexts>,
}

/// Source texts of a plan, with the findings of their validation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanTexts {
    /// The workflow file, then the included files.
    pub files: Vec<PlanFile>,
    /// Findings as `sinew workflow validate -o json` lists them.
    #[serde(default)]
    pub diagnostics: Vec<Value>,
}

/// A source file of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Name of the file in findings.
    pub name: String,
    /// Text of the file.
    pub text: String,
}

impl StoredPlan {
    /// Returns the plan's identity: hex sha256 of its canonical JSON, with sorted members and no
    /// white space.
    pub fn digest(&self) -> String {
        let mut plan = self.plan.clone();
        plan.sort_all_objects();
        sha256(plan.to_string().as_bytes())
    }
}

/// One version of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowVersion {
    /// Its sequence number in the stream: increases with every deployment.
    pub seq: u64,
    /// The deployment.
    pub deployment: Deployment,
}

/// Maximum bytes of a stored plan, and maximum values in it: a workflow of 10,000 nodes takes a
/// tenth of both.
const MAX_PLAN_BYTES: usize = 32 << 20;
const MAX_PLAN_VALUES: usize = 4_000_000;

/// Stored plans of a mesh, and the workflows that reference them.
#[derive(Clone, Copy, Debug)]
pub struct WorkflowStore<'a> {
    mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the stored plans and deployed workflows of this mesh.
    pub fn workflows(&self) -> WorkflowStore<'_> {
        WorkflowStore { mesh: self }
    }
}

impl WorkflowStore<'_> {
    fn plans(self) -> ObjectBucket {
        ObjectBucket::new(self.mesh, PLANS, "plan")
    }

    /// Stores a plan; returns its digest.
    pub async fn put_plan(self, plan: &StoredPlan) -> Result<String, MeshError> {
        let digest = plan.digest();
        let body = serde_json::to_vec(plan).map_err(|error| malformed("a plan", &error))?;
        if body.len() > MAX_PLAN_BYTES {
            let (size, limit) = (body.len() as u64, MAX_PLAN_BYTES as u64);
            return Err(MeshError::TooLarge { what: "a plan", size, limit });
        }
        let body = Bytes::from(body);
        let sha256 = digest_of(&body).await;
        self.plans().put(&digest, &sha256, [("dialect", plan.dialect.clone())], &body).await?;
        Ok(digest)
    }

    /// Returns the plan with this digest.
    pub async fn get_plan(self, digest: &str) -> Result<StoredPlan, MeshError> {
        if !is_digest(digest) {
            return Err(MeshError::NotFound { what: "plan", id: digest.chars().take(80).collect() });
        }
        let stored = self.plans().get_within(digest, MAX_PLAN_BYTES).await?;
        let plan: StoredPlan = read_unique_within(&stored.bytes, MAX_PLAN_VALUES)
            .map_err(|error| MeshError::Malformed { what: "a plan", reason: error.to_string() })?;
        let found = plan.digest();
        if found == digest {
            return Ok(plan);
        }
        Err(MeshError::Damaged {
            what: "plan",
            id: digest.to_owned(),
            reason: format!("its digest is {found}"),
        })
    }

    /// Deploys a stored plan under a name; returns the version's sequence number.
    pub async fn deploy(self, deployment: &Deployment) -> Result<u64, MeshError> {
        let name = Token::of(&deployment.name);
        let body = Bytes::from(deployment.to_json());
        if body.len() > MAX_DEPLOYMENT {
            let (size, limit) = (body.len() as u64, MAX_DEPLOYMENT as u64);
            return Err(MeshError::TooLarge { what: "a deployment", size, limit });
        }
        read(&name, &body)?;
        let subject = self.mesh.subject(&Subject::Workflow { name });
        object::store(self.mesh, "deploy a workflow", subject, None, body).await
    }

    /// Removes a workflow's name; open executions continue.
    pub async fn undeploy(self, name: &str) -> Result<(), MeshError> {
        let subject = self.mesh.subject(&Subject::Workflow { name: Token::of(name) });
        object::store(self.mesh, "remove a workflow", subject, None, Bytes::new()).await.map(drop)
    }

    /// Returns the latest version of a workflow, read from the leader.
    pub async fn latest(self, name: &str) -> Result<Option<WorkflowVersion>, MeshError> {
        let token = Token::of(name);
        let stream = stream_name("WORKFLOWS", self.mesh.namespace());
        let subject = self.mesh.subject(&Subject::Workflow { name: token.clone() });
        let Some(message) = self.mesh.message(&stream, &MessageQuery::last(&subject)).await? else {
            return Ok(None);
        };
        if message.payload.is_empty() {
            return Ok(None);
        }
        if redirected(&message.headers) || undeliverable(&message.headers).is_some() {
            let reason = "it was not written by a role that can deploy".to_owned();
            return Err(MeshError::Malformed { what: "a deployment", reason });
        }
        Ok(Some(WorkflowVersion { seq: message.sequence, deployment: read(&token, &message.payload)? }))
    }

    /// Follows the deployed workflows.
    pub fn follow(self) -> Workflows {
        let shared = Arc::new(SharedWorkflows::default());
        let namespace = self.mesh.namespace().to_owned();
        let source = Source {
            stream: stream_name("WORKFLOWS", &namespace),
            filter: sinew_protocol::subject::below(&namespace, &["workflow"]),
            from: DeliverPolicy::All,
            tick: Duration::from_secs(1),
        };
        let (board, mut next) = (Arc::clone(&shared), Some(VersionsByName::new()));
        let following = follow(self.mesh.clone(), source, move |step| match step {
            // A pass is shown when it is complete, so names do not disappear while the stream is
            // read again.
            FollowedItem::Begin => next = Some(VersionsByName::new()),
            FollowedItem::Message { subject, body, seq, .. } => {
                let Some(Subject::Workflow { name }) = Subject::parse(&namespace, &subject) else { return };
                if let Some(names) = &mut next {
                    add(names, name, seq, &body);
                } else {
                    board.names(|names| add(names, name, seq, &body));
                    board.version.send_modify(|version| *version += 1);
                }
            }
            FollowedItem::Whole => {
                if let Some(whole) = next.take() {
                    board.names(|names| *names = whole);
                    board.version.send_modify(|version| *version += 1);
                }
            }
            FollowedItem::Tick => {}
        });
        let changes = shared.version.subscribe();
        Workflows { shared, changes, follower: Arc::new(following) }
    }
}

fn malformed(what: &'static str, error: &serde_json::Error) -> MeshError {
    MeshError::Malformed { what, reason: error.to_string() }
}

/// Reads a deployment of this name from the stream.
fn read(name: &Token, body: &[u8]) -> Result<Deployment, MeshError> {
    let wrong = |reason: String| MeshError::Malformed { what: "a deployment", reason };
    let deployment = Deployment::read(body).map_err(|error| wrong(error.to_string()))?;
    if Token::of(&deployment.name) != *name {
        return Err(wrong("its name does not match its subject".to_owned()));
    }
    Ok(deployment)
}

/// The versions of each name, oldest first; `None` where the name was removed.
type VersionsByName = BTreeMap<Token, Vec<Option<Arc<WorkflowVersion>>>>;

fn add(names: &mut VersionsByName, name: Token, seq: u64, body: &[u8]) {
    let version = if body.is_empty() {
        None
    } else {
        match read(&name, body) {
            Ok(deployment) => Some(Arc::new(WorkflowVersion { seq, deployment })),
            Err(error) => {
                tracing::warn!(workflow = name.as_str(), seq, %error, "skipping a deployment");
                return;
            }
        }
    };
    let versions = names.entry(name).or_default();
    versions.push(version);
    if versions.len() > MOST_VERSIONS {
        versions.remove(0);
    }
}

/// A live view of the deployed workflows. Clones share it; it ends with the last clone.
#[derive(Clone)]
pub struct Workflows {
    shared: Arc<SharedWorkflows>,
    changes: watch::Receiver<u64>,
    follower: Arc<Follower>,
}

#[derive(Default)]
struct SharedWorkflows {
    names: RwLock<VersionsByName>,
    version: watch::Sender<u64>,
}

impl SharedWorkflows {
    fn names(&self, change: impl FnOnce(&mut VersionsByName)) {
        change(&mut self.names.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Workflows {
    /// Waits until the view contains everything that was deployed when it was created.
    pub async fn ready(&self) {
        self.follower.ready().await;
    }

    /// Waits until the view contains everything that is deployed now; an error if that is not known
    /// in time: then a missing name may still be deployed.
    pub async fn current(&self) -> Result<(), MeshError> {
        self.follower.current().await
    }

    /// Returns the latest version of the workflow with this name.
    pub fn get(&self, name: &str) -> Option<Arc<WorkflowVersion>> {
        self.by_token(&Token::of(name))
    }

    /// Returns the latest version of the workflow with this token.
    pub fn by_token(&self, name: &Token) -> Option<Arc<WorkflowVersion>> {
        self.read(|names| names.get(name)?.last()?.clone())
    }

    /// Returns the latest version of every workflow, by name.
    pub fn list(&self) -> Vec<Arc<WorkflowVersion>> {
        let mut all: Vec<_> =
            self.read(|names| names.values().filter_map(|versions| versions.last()?.clone()).collect());
        all.sort_by(|a, b| a.deployment.name.cmp(&b.deployment.name));
        all
    }

    /// Returns all kept versions of a name, oldest first, including those before its removal.
    pub fn versions(&self, name: &str) -> Vec<Arc<WorkflowVersion>> {
        self.read(|names| names.get(&Token::of(name)).into_iter().flatten().flatten().cloned().collect())
    }

    /// Waits for a deployment or removal since the last call on this handle.
    pub async fn changed(&mut self) {
        let _gone = self.changes.changed().await;
    }

    fn read<T>(&self, look: impl FnOnce(&VersionsByName) -> T) -> T {
        look(&self.shared.names.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Workflows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workflows").finish_non_exhaustive()
    }
}
