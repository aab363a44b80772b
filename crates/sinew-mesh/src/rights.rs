//! Rights of this connection, as the server states them.

use std::collections::BTreeSet;

use serde::Deserialize;
use sinew_protocol::permission::{GrantedRights, OWN_RIGHTS};

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::pull::{answer, unreachable};

/// Timeout of the server's reply.
const WAIT: std::time::Duration = std::time::Duration::from_secs(5);
const WHAT: &str = "read the rights of this connection";

#[derive(Deserialize)]
struct Answer {
    data: Option<UserInfo>,
}

#[derive(Deserialize)]
struct UserInfo {
    permissions: Option<UserLimits>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UserLimits {
    publish: Option<SubjectRights>,
    subscribe: Option<SubjectRights>,
    responses: Option<ResponseLimits>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubjectRights {
    allow: Option<BTreeSet<String>>,
    deny: Option<BTreeSet<String>>,
}

#[derive(Deserialize)]
struct ResponseLimits {
    max: i64,
}

/// Returns whether a right is granted. Rights that cannot be read count as missing. A server that
/// does not reply is an error, because the process would otherwise lack the right until its end.
pub fn is_granted(asked: Result<bool, MeshError>) -> Result<bool, MeshError> {
    match asked {
        Err(error) if error.is_transient() => Err(error),
        asked => Ok(asked.unwrap_or_default()),
    }
}

impl Mesh {
    /// Returns whether this connection may publish to a subject, without an attempt that the server
    /// would report as a violation.
    pub(crate) async fn may_publish(&self, subject: &str) -> Result<bool, MeshError> {
        let rights = self.rights().await;
        is_granted(rights.map(|rights| rights.is_none_or(|granted| granted.may_publish(subject))))
    }

    /// Returns the rights of this connection; `None` if it may do everything in its account.
    pub(crate) async fn rights(&self) -> Result<Option<GrantedRights>, MeshError> {
        let client = self.client();
        let asked = answer(self, WHAT, WAIT, client.request(OWN_RIGHTS, "".into()));
        let said = self.permitted(OWN_RIGHTS, asked).await??.map_err(|error| unreachable(WHAT, &error))?;
        let malformed = |reason: String| MeshError::Malformed { what: "the server's user info", reason };
        let said: Answer =
            serde_json::from_slice(&said.payload).map_err(|error| malformed(error.to_string()))?;
        let user = said.data.ok_or_else(|| malformed("it has no data".to_owned()))?;
        Ok(user.permissions.map(|limits| {
            let (publish, subscribe) =
                (limits.publish.unwrap_or_default(), limits.subscribe.unwrap_or_default());
            GrantedRights {
                publish: publish.allow,
                deny_publish: publish.deny.unwrap_or_default(),
                subscribe: subscribe.allow,
                deny_subscribe: subscribe.deny.unwrap_or_default(),
                responses: limits.responses.map_or(0, |responses| responses.max),
            }
        }))
    }
}
