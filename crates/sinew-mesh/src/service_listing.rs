//! The listed services of a connection, and their replies to service queries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Description of a service.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Description for people.
    pub description: String,
    /// Any text; reported as `0.0.0` unless it has the form `1.2.3`.
    pub version: String,
    /// Additional properties.
    pub metadata: BTreeMap<String, String>,
    /// Statistics beyond those of its calls, for `nats micro stats`; null if there are none.
    pub data: Value,
}

/// The listed services of one connection.
#[derive(Debug, Default)]
pub(crate) struct ServiceListing {
    services: Mutex<BTreeMap<String, Arc<ListedService>>>,
    /// Tasks that reply to queries to all services, while any are listed.
    pub(crate) answering: tokio::sync::Mutex<Weak<JoinSet<()>>>,
}

/// A listed service.
pub(crate) struct ListedService {
    /// Name in subjects, shared by replicas.
    pub(crate) name: String,
    /// Id of this replica.
    pub(crate) id: String,
    /// Subject of its calls.
    pub(crate) subject: String,
    pub(crate) started: String,
    pub(crate) about: Box<dyn Fn() -> About + Send + Sync>,
    pub(crate) figures: Mutex<EndpointFigures>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointFigures {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) busy: Duration,
    pub(crate) last_error: String,
}

impl ServiceListing {
    pub(crate) fn services(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ListedService>>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListedService {
    /// Returns the service's reply to a query.
    pub(crate) fn said(&self, verb: &str) -> Value {
        let about = (self.about)();
        let mut said = json!({
            "type": format!("io.nats.micro.v1.{}_response", verb.to_lowercase()),
            "name": self.name,
            "id": self.id,
            "version": semantic(&about.version),
            "metadata": about.metadata,
        });
        match verb {
            "INFO" => {
                said["description"] = about.description.into();
                said["endpoints"] = json!([self.endpoint(json!({ "metadata": {} }))]);
            }
            "STATS" => {
                said["started"] = self.started.clone().into();
                let mut endpoint = self.endpoint(self.figures());
                if !about.data.is_null() {
                    endpoint["data"] = about.data;
                }
                said["endpoints"] = json!([endpoint]);
            }
            _ => {}
        }
        said
    }

    fn endpoint(&self, mut of: Value) -> Value {
        of["name"] = "a2a".into();
        of["subject"] = self.subject.clone().into();
        of["queue_group"] = self.name.clone().into();
        of
    }

    fn figures(&self) -> Value {
        let EndpointFigures { calls, errors, busy, last_error } =
            self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let busy = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        json!({
            "num_requests": calls,
            "num_errors": errors,
            "processing_time": busy,
            "average_processing_time": busy.checked_div(calls).unwrap_or_default(),
            "last_error": last_error,
        })
    }
}

impl fmt::Debug for ListedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListedService")
            .field("name", &self.name)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Micro services require versions like `1.2.3`; versions of agents and workflows may be any text.
fn semantic(version: &str) -> &str {
    let numbers: Vec<&str> = version.split('.').collect();
    let number = |text: &&str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_digit())
            && (*text == "0" || !text.starts_with('0'))
    };
    if numbers.len() == 3 && numbers.iter().all(number) { version } else { "0.0.0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_what_micro_services_take() {
        for (version, want) in [
            ("1.2.3", "1.2.3"),
            ("0.10.0", "0.10.0"),
            ("1.02.3", "0.0.0"),
            ("2024-05", "0.0.0"),
            ("", "0.0.0"),
        ] {
            assert_eq!(semantic(version), want);
        }
    }
}
