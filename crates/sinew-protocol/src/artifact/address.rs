//! Where the mesh keeps the bytes of an artifact: an address that says which object it is and how to check it.

use std::fmt;
use std::str::FromStr;

use super::{ArtifactUri, BadArtifact, parameters};
use crate::deployment::is_digest;
use crate::{ExecutionId, TaskId};

/// An [`ArtifactUri`] in the mesh's own store: `artifact://APP/USER/EXECUTION/NAME?version=N&task=TASK&sha256=HEX`.
///
/// The session is the execution. A name never becomes part of a key ([`StoredAt::key`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredAt {
    /// Agent and name of the artifact; its session is the execution.
    pub uri: ArtifactUri,
    /// The execution it belongs to.
    pub execution: ExecutionId,
    /// The task that made it, or that it is the input of.
    pub task: TaskId,
    /// sha256 of the bytes, lower-case hex.
    pub sha256: String,
}

impl StoredAt {
    /// The key in the store of artifacts: `{execution}.{task}.{sha256}`.
    pub fn key(&self) -> String {
        format!("{}.{}.{}", self.execution, self.task, self.sha256)
    }
}

impl fmt::Display for StoredAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.uri.artifact.version.is_some() { '&' } else { '?' };
        write!(f, "{}{mark}task={}&sha256={}", self.uri, self.task, self.sha256)
    }
}

impl FromStr for StoredAt {
    type Err = BadArtifact;

    fn from_str(text: &str) -> Result<Self, BadArtifact> {
        let bad = || BadArtifact::Address(text.chars().take(200).collect());
        let uri: ArtifactUri = text.parse()?;
        let query = text.split_once('?').map_or("", |(_, query)| query);
        let one = |wanted: &str| {
            let mut found = parameters(query).filter(|(name, _)| *name == wanted);
            // Two of them would mean different things to different readers.
            found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
        };
        let task = one("task").and_then(|task| TaskId::parse(task).ok()).ok_or_else(bad)?;
        let sha256 = one("sha256").filter(|hash| is_digest(hash)).ok_or_else(bad)?.to_owned();
        let execution = ExecutionId::parse(&uri.session).map_err(|_| bad())?;
        Ok(Self { uri, execution, task, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_object() {
        let hash = "0f".repeat(32);
        for version in ["version=0&", ""] {
            let text = format!("artifact://order%20intake/u/e1/in%2Ea.json?{version}task=t1&sha256={hash}");
            let read: StoredAt = text.parse().unwrap();
            assert_eq!(read.key(), format!("e1.t1.{hash}"));
            assert_eq!(read.uri.artifact.name.as_str(), "in.a.json");
            assert_eq!(read.to_string().parse::<StoredAt>(), Ok(read.clone()));
            assert_eq!(read.to_string().parse::<ArtifactUri>(), Ok(read.uri));
        }
        for query in [
            String::new(),
            "task=t".to_owned(),
            format!("sha256={hash}"),
            format!("task=a.b&sha256={hash}"),
            format!("task=t&sha256={}", "0F".repeat(32)),
            format!("task=t&task=u&sha256={hash}"),
            format!("task=t&sha256={hash}&sha256={hash}"),
        ] {
            assert!(format!("artifact://a/u/e1/n?{query}").parse::<StoredAt>().is_err(), "{query}");
        }
        assert!(format!("artifact://a/u/e%2F1/n?task=t&sha256={hash}").parse::<StoredAt>().is_err());
    }
}
