//! The address of an artifact's bytes on the mesh: the object and how to verify it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::{ArtifactUri, BadArtifact, ObjectKey, parameters};
use crate::deployment::is_digest;
use crate::{ExecutionId, TaskId};

/// Prefix of every address.
const SCHEME: &str = "artifact://";

/// [`ArtifactUri`] in the artifact store of the mesh:
/// `artifact://APP/USER/EXECUTION/NAME?version=N&task=TASK&sha256=HEX&key=KEY`.
///
/// The session is the execution. The name is never part of the object's id ([`StoredAt::object`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredAt {
    /// Agent and name of the artifact; its session is the execution.
    pub uri: ArtifactUri,
    /// Execution that the artifact belongs to.
    pub execution: ExecutionId,
    /// Task that created the artifact, or that receives it as input.
    pub task: TaskId,
    /// sha256 of the bytes, lower-case hex.
    pub sha256: String,
    /// Key of the object, without which it cannot be found or decrypted.
    pub key: ObjectKey,
}

impl StoredAt {
    /// Returns the id of the object: `{execution}.{task}.{sha256}`.
    pub fn object(&self) -> String {
        object_id(&self.execution, &self.task, &self.sha256)
    }
}

/// Returns the id of the object that stores bytes of a task.
pub fn object_id(execution: &ExecutionId, task: &TaskId, sha256: &str) -> String {
    format!("{execution}.{task}.{sha256}")
}

/// Removes the key from an address, which then identifies the content but cannot decrypt it.
/// Returns other strings unchanged.
pub fn without_key(text: &str) -> Cow<'_, str> {
    if !text.starts_with(SCHEME) || text.parse::<StoredAt>().is_err() {
        return Cow::Borrowed(text);
    }
    let Some((path, query)) = text.split_once('?') else { return Cow::Borrowed(text) };
    let kept: Vec<&str> = query.split('&').filter(|word| !word.starts_with("key=")).collect();
    Cow::Owned(format!("{path}?{}", kept.join("&")))
}

impl fmt::Display for StoredAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.uri.artifact.version.is_some() { '&' } else { '?' };
        write!(f, "{}{mark}task={}&sha256={}&key={}", self.uri, self.task, self.sha256, self.key)
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
            // Readers could interpret a repeated parameter differently.
            found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
        };
        let task = one("task").and_then(|task| TaskId::parse(task).ok()).ok_or_else(bad)?;
        let sha256 = one("sha256").filter(|hash| is_digest(hash)).ok_or_else(bad)?.to_owned();
        let execution = ExecutionId::parse(&uri.session).map_err(|_| bad())?;
        if !query.split('&').any(|word| word.starts_with("key=")) {
            return Err(BadArtifact::NoKey(text.chars().take(200).collect()));
        }
        let key = one("key").and_then(|key| key.parse().ok()).ok_or_else(bad)?;
        Ok(Self { uri, execution, task, sha256, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_object() {
        let (hash, key) = ("0f".repeat(32), ObjectKey::derived(&[7; 32], "e1.t1"));
        for version in ["version=0&", ""] {
            let text = format!(
                "artifact://order%20intake/u/e1/in%2Ea.json?{version}task=t1&sha256={hash}&key={key}"
            );
            let read: StoredAt = text.parse().unwrap();
            assert_eq!(read.object(), format!("e1.t1.{hash}"));
            assert_eq!(read.key, key);
            assert_eq!(read.uri.artifact.name.as_str(), "in.a.json");
            assert_eq!(read.to_string().parse::<StoredAt>(), Ok(read.clone()));
            assert_eq!(read.to_string().parse::<ArtifactUri>(), Ok(read.uri));
            assert_eq!(without_key(&text), text.replace(&format!("&key={key}"), ""));
        }
        for query in [
            String::new(),
            "task=t".to_owned(),
            format!("sha256={hash}"),
            format!("task=a.b&sha256={hash}&key={key}"),
            format!("task=t&sha256={}&key={key}", "0F".repeat(32)),
            format!("task=t&task=u&sha256={hash}&key={key}"),
            format!("task=t&sha256={hash}&sha256={hash}&key={key}"),
            format!("task=t&sha256={hash}&key={key}&key={key}"),
            format!("task=t&sha256={hash}&key={hash}"),
            format!("task=t&sha256={hash}&key="),
        ] {
            let text = format!("artifact://a/u/e1/n?{query}");
            let bad = text.parse::<StoredAt>().unwrap_err();
            assert_eq!(bad.code(), "SINEW-5002", "{query}");
            assert_eq!(without_key(&text), text);
        }
        let keyless = format!("artifact://a/u/e1/n?task=t&sha256={hash}");
        assert_eq!(keyless.parse::<StoredAt>().unwrap_err().code(), "SINEW-5004");
        let elsewhere = format!("artifact://a/u/e%2F1/n?task=t&sha256={hash}&key={key}");
        assert!(elsewhere.parse::<StoredAt>().is_err());
        assert!(!format!("{key:?}").contains(&key.to_string()), "keys are not shown");
    }
}
