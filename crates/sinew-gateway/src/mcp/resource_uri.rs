//! Addresses of resources: tasks, and artifacts stored on the mesh.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sinew_protocol::artifact::StoredAt;

/// Prefix of a task's address.
const TASK_PREFIX: &str = "sinew://tasks/";
/// Prefix of an artifact's address.
const ARTIFACT_PREFIX: &str = "artifact://";
/// Template of task addresses.
pub(super) const TASK_TEMPLATE: &str = "sinew://tasks/{task}";
/// Template of artifact addresses, as in results.
pub(super) const ARTIFACT_TEMPLATE: &str =
    "artifact://{app}/{user}/{execution}/{name}{?version,task,sha256,key}";
/// Maximum length of an address that is parsed.
const MAX_URI_BYTES: usize = 4_096;
/// Characters of an id that are not escaped in an address.
const ID_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A resource, identified by its address.
#[derive(Debug, PartialEq)]
pub(super) enum ResourceLocation {
    /// A task, by the id that the client knows.
    Task(String),
    /// An artifact in the mesh's store.
    Artifact(Box<StoredAt>),
}

/// Returns the address of a task.
pub(super) fn task_uri(task: &str) -> String {
    format!("{TASK_PREFIX}{}", utf8_percent_encode(task, ID_SEGMENT))
}

impl ResourceLocation {
    /// Parses an address. Returns `None` if it is not the address of a resource of this server.
    pub(super) fn parse(uri: &str) -> Option<Self> {
        if uri.len() > MAX_URI_BYTES {
            return None;
        }
        if let Some(task) = uri.strip_prefix(TASK_PREFIX) {
            let task = percent_decode_str(task).decode_utf8().ok()?;
            let is_id = !task.is_empty() && !task.chars().any(|c| c.is_control() || c == '/');
            return is_id.then(|| Self::Task(task.into_owned()));
        }
        let address = uri.starts_with(ARTIFACT_PREFIX).then(|| uri.parse().ok())??;
        Some(Self::Artifact(Box::new(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_tasks_are_read_back() {
        for task in ["x7f3", "one.t-1", "a b", "ä%2F"] {
            assert_eq!(
                ResourceLocation::parse(&task_uri(task)),
                Some(ResourceLocation::Task(task.to_owned()))
            );
        }
        let hash = "0f".repeat(32);
        let key = "A".repeat(43);
        let address = format!("artifact://orders/u/e1/in.json?version=0&task=t1&sha256={hash}&key={key}");
        let Some(ResourceLocation::Artifact(read)) = ResourceLocation::parse(&address) else {
            panic!("{address}")
        };
        assert_eq!(read.to_string(), address);
    }

    #[test]
    fn other_addresses_are_none() {
        let long = format!("sinew://tasks/{}", "x".repeat(5_000));
        let hash = "0f".repeat(32);
        let key = "A".repeat(43);
        let upwards = format!("artifact://orders/u/..%2Fe1/n?task=t&sha256={hash}&key={key}");
        let keyless = format!("artifact://orders/u/e1/n?task=t&sha256={hash}");
        for uri in [
            "",
            "sinew://tasks/",
            "sinew://tasks/a/b",
            "sinew://tasks/..%2F..",
            "sinew://tasks/%ff",
            "sinew://tasks/a%0d%0ab",
            "file:///etc/passwd",
            "artifact://orders/u/e1/in.json",
            &upwards,
            &keyless,
            &long,
        ] {
            assert_eq!(ResourceLocation::parse(uri), None, "{uri}");
        }
    }
}
