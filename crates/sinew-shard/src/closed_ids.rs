//! Ids of recently closed executions, which spare a lookup in the history for new ids.
//!
//! A key of [`sinew_protocol::start::new_key`] contains its creation time. No execution starts
//! before its key was created, and an owner rejects keys from the future. An owner knows all ids
//! that were closed since it opened the shard, except those that it dropped. A key that is younger
//! than both was therefore never used, unless its id is open or among the known ones.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sinew_engine::Time;
use sinew_protocol::command::StartCommand;
use sinew_protocol::start::{MAX_KEY_LEAD_MS, new_key_time};
use sinew_protocol::{Fault, code};

use crate::start_identity::StartIdentity;

/// Maximum number of remembered ids.
const MAX_CLOSED_IDS: usize = 32 * 1024;

/// Ids of executions that closed under the current owner of a shard.
#[derive(Debug, Default)]
pub(crate) struct ClosedIds {
    /// All ids closed after this time are remembered; `None` until the owner knows the time.
    complete_since: Option<Time>,
    /// Hashes of ids with the times at which they closed, oldest first.
    order: VecDeque<(u64, Time)>,
    /// The same hashes. A hash collision costs a lookup in the history.
    hashes: HashSet<u64>,
}

impl ClosedIds {
    /// Records the time; the first call sets the time of the opening.
    pub(crate) fn handle_time(&mut self, now: Time) {
        self.complete_since.get_or_insert(now);
    }

    /// Remembers an id.
    pub(crate) fn remember(&mut self, id: &str, now: Time) {
        if self.order.len() == MAX_CLOSED_IDS
            && let Some((oldest, closed)) = self.order.pop_front()
        {
            self.hashes.remove(&oldest);
            self.complete_since = self.complete_since.max(Some(closed));
        }
        let hash = hash(id);
        self.order.push_back((hash, now));
        self.hashes.insert(hash);
    }

    /// Returns true if no execution can have had the id of a start before, except open ones. The id
    /// is derived from the start's key.
    pub(crate) fn is_new(&self, identity: &StartIdentity, start: &StartCommand) -> bool {
        let Some((made, since)) = key_time(identity, start).zip(self.complete_since) else { return false };
        // Clocks of two owners differ slightly: twice the permitted lead of a key is a sufficient
        // margin.
        made > since.saturating_add(2 * MAX_KEY_LEAD_MS)
            && !self.hashes.contains(&hash(start.execution.as_str()))
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// Rejects a key whose creation time is in the future.
pub(crate) fn check_key_time(identity: &StartIdentity, start: &StartCommand, now: Time) -> Result<(), Fault> {
    match key_time(identity, start) {
        Some(made) if made > now.saturating_add(MAX_KEY_LEAD_MS) => {
            let text = format!("the key of the start was created {} ms in the future", made - now);
            Err(Fault::invalid(code::START_KEY_OF_FUTURE.as_str(), text))
        }
        _ => Ok(()),
    }
}

/// Returns the creation time of the key of a client's start, if the key contains it.
fn key_time(identity: &StartIdentity, start: &StartCommand) -> Option<Time> {
    identity.is_client().then_some(start.idempotency_key.as_deref()).flatten().and_then(new_key_time)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use sinew_protocol::start::new_key;
    use sinew_protocol::{ExecutionId, Token};

    use super::*;

    fn start(key: &str) -> (StartIdentity, StartCommand) {
        let mut start = StartCommand::new(ExecutionId::of("ns", "ada", key), "w", Value::Null);
        start.idempotency_key = Some(key.to_owned());
        (StartIdentity::of(&start, &Token::of("ada"), false), start)
    }

    #[test]
    fn only_a_key_that_is_younger_than_all_that_was_forgotten_is_new() {
        let is_new = |ids: &ClosedIds, key: &str| {
            let (identity, start) = start(key);
            ids.is_new(&identity, &start)
        };
        let mut ids = ClosedIds::default();
        let (old, young) = (new_key(10_000, 1), new_key(50_000, 2));
        assert!(!is_new(&ids, &young), "an owner that does not know the time");
        ids.handle_time(20_000);
        ids.handle_time(90_000);
        assert!(!is_new(&ids, &old) && is_new(&ids, &young));
        assert!(!is_new(&ids, &new_key(22_000, 3)), "a key that may have been used under the last owner");
        for other in ["k", "new-1", ""] {
            assert!(!is_new(&ids, other), "{other}");
        }
        ids.remember(start(&young).1.execution.as_str(), 60_000);
        assert!(!is_new(&ids, &young), "a closed one");
        for nth in 0..MAX_CLOSED_IDS {
            ids.remember(&nth.to_string(), 61_000);
        }
        assert!(!is_new(&ids, &young), "one that was closed and forgotten");
        assert!(!is_new(&ids, &new_key(62_000, 4)) && is_new(&ids, &new_key(62_001, 4)));
    }

    #[test]
    fn keys_of_the_future_are_refused() {
        for (made, now, is_good) in [(0, 5_000, true), (6_000, 5_000, true), (6_001, 5_000, false)] {
            let (identity, start) = start(&new_key(made, 1));
            assert_eq!(check_key_time(&identity, &start, now).is_ok(), is_good, "{made} {now}");
        }
    }
}
