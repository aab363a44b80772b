//! Controls of a deployed workflow: pause, resume, and rollback to an earlier version.
//!
//! Each control is a deployment of the name: executors and clients see it in their view of the
//! deployed workflows. The owner of a shard applies a pause when it decides a start.

use sinew_documents::execution::caller;
use sinew_documents::workflow::WorkflowState;
use sinew_mesh::workflow::Deployment;
use sinew_protocol::deployment::{WORKFLOW_PAUSE_PREFIX, WorkflowPause};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{ExecutionId, code};
use sinew_runtime::local;

use crate::deployed_workflows::distinct_versions;
use crate::deployment::find_deployed;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;

/// Maximum length of a reason, in bytes.
const MAX_REASON_BYTES: usize = 1_000;

impl MeshOperator {
    /// Pauses a workflow: new executions are created and do not start. Executions that have started
    /// continue. Repeatable.
    pub async fn pause_workflow(&self, name: &str, reason: &str) -> Result<WorkflowState, Failure> {
        if reason.len() > MAX_REASON_BYTES {
            return Err(Failure::usage(format!("the reason has at most {MAX_REASON_BYTES} bytes")));
        }
        let deployment = self.latest_deployment(name).await?;
        let by = caller(self.mesh().caller());
        let same = |pause: &WorkflowPause| pause.by == by && pause.reason == reason;
        if deployment.pause.as_ref().is_some_and(same) {
            return self.workflow_state(deployment, None).await;
        }
        let pause = WorkflowPause { by, reason: reason.to_owned(), at: local::now() };
        self.store_deployment(Deployment { pause: Some(pause), ..deployment }, None).await
    }

    /// Resumes a workflow: executions that its pause kept start. Repeatable.
    pub async fn resume_workflow(&self, name: &str) -> Result<WorkflowState, Failure> {
        let deployment = self.latest_deployment(name).await?;
        if deployment.pause.is_none() {
            return self.workflow_state(deployment, None).await;
        }
        self.store_deployment(Deployment { pause: None, ..deployment }, None).await
    }

    /// Makes an earlier version the one that new executions run: the one with this prefix of its
    /// digest, or this version of its author, else the one before the current version. A paused
    /// workflow stays paused.
    ///
    /// # Errors
    /// `SINEW-8067` if there is no earlier version; `SINEW-8039` for an unknown one.
    pub async fn rollback_workflow(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<WorkflowState, Failure> {
        let current = self.latest_deployment(name).await?;
        let versions = distinct_versions(&self.workflows().await?, name);
        let earlier = match version {
            None => versions.iter().find(|one| one.deployment.digest != current.digest),
            Some(version) => {
                let of_author = |one: &Deployment| one.author_version.as_deref() == Some(version);
                if let [one] =
                    versions.iter().filter(|one| of_author(&one.deployment)).collect::<Vec<_>>()[..]
                {
                    Some(one)
                } else {
                    let (_, digest) = find_deployed(self, name, Some(version)).await?;
                    versions.iter().find(|one| one.deployment.digest == digest)
                }
            }
        };
        let earlier = earlier.ok_or_else(|| {
            let text = format!("workflow '{name}' has no earlier version");
            Failure::new(FailureKind::Conflict, code::WORKFLOW_WITHOUT_EARLIER_VERSION.as_str(), text)
                .hint("`sinew workflow versions NAME` lists the versions")
        })?;
        if earlier.deployment.digest == current.digest {
            return self.workflow_state(current, None).await;
        }
        let next = Deployment {
            at: local::now(),
            by: caller(self.mesh().caller()),
            pause: current.pause,
            ..earlier.deployment.clone()
        };
        self.store_deployment(next, Some(current.digest)).await
    }

    /// Returns why an execution has not started: its workflow is paused. `None` if it has started, or
    /// if its state is unknown.
    pub async fn kept_start(&self, execution: &ExecutionId, workflow: &str) -> Option<String> {
        // Without a paused workflow, a start needs no further request.
        self.client.programs().pause_of(workflow)?;
        let record = self.client.record(execution).await.ok()??;
        let folded = self.client.folded(&record).await.ok()?;
        folded.kept_reason().map(str::to_owned)
    }

    async fn latest_deployment(&self, name: &str) -> Result<Deployment, Failure> {
        match self.mesh().workflows().latest(name).await? {
            Some(latest) => Ok(latest.deployment),
            // The error lists similar names.
            None => Err(find_deployed(self, name, None).await.err().unwrap_or_else(|| {
                Failure::new(
                    FailureKind::NotFound,
                    code::NO_SUCH_WORKFLOW_DEPLOYED.as_str(),
                    format!("no workflow '{name}' is deployed"),
                )
            })),
        }
    }

    async fn store_deployment(
        &self,
        next: Deployment,
        previous: Option<String>,
    ) -> Result<WorkflowState, Failure> {
        self.mesh().workflows().deploy(&next).await?;
        self.workflow_state(next, previous).await
    }

    async fn workflow_state(
        &self,
        deployment: Deployment,
        previous: Option<String>,
    ) -> Result<WorkflowState, Failure> {
        let open = self.client.open().await?;
        let kept = open.iter().filter(|one| {
            one.workflow == deployment.name
                && one.status == ExecutionStatus::Paused
                && one.waiting.as_deref().is_some_and(|waiting| waiting.starts_with(WORKFLOW_PAUSE_PREFIX))
        });
        Ok(WorkflowState {
            kept: kept.count(),
            name: deployment.name,
            version: deployment.digest,
            author_version: deployment.author_version,
            previous,
            paused: deployment.pause.as_ref().map(WorkflowPause::text),
        })
    }
}
