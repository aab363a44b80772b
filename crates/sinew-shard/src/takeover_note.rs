//! The note of a shard's owner about work in progress while it catches up after a takeover.
//!
//! Pure code. An execution or message that crashes its owner would crash every successor too. The
//! note outlives the process, so a successor learns which work was in progress at the crash. A
//! process can also be killed from outside at any time, so one crash proves nothing: groups of
//! suspects become smaller with each crash, and only an item that was in progress at three crashes
//! in a row, the last time alone, is condemned.

use std::collections::{BTreeMap, HashSet};

use crate::bug::seeded_bug;
use serde::{Deserialize, Serialize};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Subject};

/// Consecutive crashes with an item in progress after which owners no longer process the item.
pub const MAX_ITEM_DEATHS: u32 = 3;
/// Number of groups into which a set of items is split.
const GROUP_COUNT: usize = 8;
/// Maximum number of items in progress.
const MAX_GROUP_ITEMS: usize = 256;

/// A work item that may crash the process that processes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkItem {
    /// Folding an execution, repeating its outstanding actions, or deciding an input for it.
    Execution(ExecutionId),
    /// Reading a message that names no execution in its subject.
    Message {
        /// The kind of the stream.
        stream: String,
        /// Its sequence in the stream.
        seq: u64,
    },
}

impl WorkItem {
    /// Returns the work item of a message, from its subject or otherwise its sequence in this kind
    /// of stream. Does not read the body.
    pub fn of_message(subject: Option<&Subject>, stream: &str, seq: u64) -> Self {
        let execution = match subject {
            Some(Subject::Result { execution, .. }) => Some(execution.clone()),
            // The id of a start is the id of its execution.
            Some(Subject::Command { operation: Operation::Start, id, .. }) => {
                ExecutionId::parse(id.as_str()).ok()
            }
            _ => None,
        };
        match execution {
            Some(execution) => Self::Execution(execution),
            None => Self::Message { stream: stream.to_owned(), seq },
        }
    }
}

/// An item that was in progress when the last owner ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SuspectItem {
    item: WorkItem,
    /// Consecutive crashes with the item in progress.
    deaths: u32,
}

/// Work in progress of a shard's owner, and the suspected items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeoverNote {
    /// The process that wrote the note.
    #[serde(default)]
    process: String,
    #[serde(default)]
    in_hand: Vec<WorkItem>,
    #[serde(default)]
    suspects: Vec<SuspectItem>,
    /// Items that owners no longer process.
    #[serde(default)]
    condemned: Vec<WorkItem>,
}

impl TakeoverNote {
    /// Decodes a stored note. An unreadable note names no suspects.
    pub fn decode(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Encodes the note.
    pub fn encode(&self) -> Vec<u8> {
        // Plain data with string keys always serializes.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the initial note of the next owner. `ended` states whether this note's writer ended
    /// with the items in progress; losing the shard without a crash does not count.
    #[must_use]
    pub fn succeed(mut self, process: &str, ended: bool) -> Self {
        process.clone_into(&mut self.process);
        let in_hand = std::mem::take(&mut self.in_hand);
        if in_hand.is_empty() || !ended || seeded_bug!(DeathNotCounted) {
            return self;
        }
        let before: BTreeMap<WorkItem, u32> =
            self.suspects.drain(..).map(|suspect| (suspect.item, suspect.deaths)).collect();
        let is_alone = in_hand.len() == 1;
        for item in in_hand {
            let deaths = before.get(&item).copied().unwrap_or_default() + 1;
            if (is_alone && deaths >= MAX_ITEM_DEATHS) || seeded_bug!(CondemnedAtOnce) {
                self.condemned.push(item);
            } else {
                self.suspects.push(SuspectItem { item, deaths });
            }
        }
        self
    }

    /// Returns whether another process wrote the note.
    pub fn is_of_another(&self, process: &str) -> bool {
        self.process != process
    }

    /// Marks items as in progress.
    pub fn hold(&mut self, items: &[WorkItem]) {
        self.in_hand = items.to_vec();
    }

    /// Marks the items in progress as completed. A suspect remains one, because more work may be
    /// pending for it.
    pub fn pass(&mut self) {
        self.in_hand.clear();
    }

    /// Forgets a condemned item after it was held or quarantined.
    pub fn settle(&mut self, item: &WorkItem) {
        self.condemned.retain(|condemned| condemned != item);
    }

    /// Removes all suspects except these executions, because the owner has caught up with the
    /// others. Returns whether anything was removed.
    pub fn forget_except(&mut self, watched: &HashSet<ExecutionId>) -> bool {
        let before = self.suspects.len() + self.condemned.len();
        let is_watched = |item: &WorkItem| matches!(item, WorkItem::Execution(id) if watched.contains(id));
        self.suspects.retain(|suspect| is_watched(&suspect.item));
        self.condemned.clear();
        before != self.suspects.len()
    }

    /// Returns whether the note is empty.
    pub fn is_blank(&self) -> bool {
        self.in_hand.is_empty() && self.suspects.is_empty() && self.condemned.is_empty()
    }

    /// Returns whether an owner crashed on work that was not completed since.
    pub fn is_suspicious(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Returns whether owners no longer process the item.
    pub fn is_condemned(&self, item: &WorkItem) -> bool {
        self.condemned.contains(item)
    }

    /// Returns the items that owners no longer process.
    pub fn condemned(&self) -> &[WorkItem] {
        &self.condemned
    }

    fn is_suspect(&self, item: &WorkItem) -> bool {
        self.suspects.iter().any(|suspect| suspect.item == *item)
    }

    /// Splits work into groups that are processed together, in order. Suspects are never grouped
    /// with other items, and their groups are so small that a few crashes isolate one of them. A
    /// condemned item is alone.
    pub fn split<T>(
        &self,
        work: impl IntoIterator<Item = T>,
        most: usize,
        item: impl Fn(&T) -> WorkItem,
    ) -> Vec<Vec<T>> {
        let narrow = self.suspects.len().div_ceil(GROUP_COUNT);
        let mut groups: Vec<Vec<T>> = Vec::new();
        // Kind and size limit of the last group.
        let mut last = (false, 0);
        for one in work {
            let key = item(&one);
            let suspect = self.is_suspect(&key);
            let limit = match suspect {
                _ if self.is_condemned(&key) => 1,
                true => narrow,
                false => most.min(MAX_GROUP_ITEMS),
            };
            match groups.last_mut() {
                Some(group) if last == (suspect, limit) && group.len() < limit => group.push(one),
                _ => groups.push(vec![one]),
            }
            last = (suspect, limit);
        }
        groups
    }

    /// Splits the executions that an owner opens: suspects first, so that two of them do not hide
    /// each other, then the others in a few groups.
    pub fn split_open<T>(&self, mut work: Vec<T>, item: impl Fn(&T) -> WorkItem) -> Vec<Vec<T>> {
        work.sort_by_cached_key(|one| {
            let key = item(one);
            (!self.is_suspect(&key), key)
        });
        let others = work.iter().filter(|one| !self.is_suspect(&item(one))).count();
        self.split(work, others.div_ceil(GROUP_COUNT).max(1), item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(nth: usize) -> WorkItem {
        WorkItem::Execution(ExecutionId::parse(&format!("e{nth:05}")).unwrap())
    }

    /// Opens `count` executions, of which `kills` crash the process, until an owner succeeds.
    /// Returns the number of crashes and the condemned items.
    fn deaths(count: usize, kills: impl Fn(usize) -> bool) -> (usize, Vec<WorkItem>) {
        let mut stored = TakeoverNote::default().encode();
        for deaths in 0..200 {
            let note = TakeoverNote::decode(&stored);
            let ended = note.is_of_another(&deaths.to_string());
            let mut note = note.succeed(&deaths.to_string(), ended);
            let condemned = note.condemned().to_vec();
            let work: Vec<usize> = (0..count).filter(|nth| !condemned.contains(&item(*nth))).collect();
            let died = note.split_open(work, |nth| item(*nth)).into_iter().any(|group| {
                note.hold(&group.iter().map(|nth| item(*nth)).collect::<Vec<_>>());
                stored = note.encode();
                let died = group.into_iter().any(&kills);
                if !died {
                    note.pass();
                }
                died
            });
            if !died {
                return (deaths, condemned);
            }
        }
        panic!("a crash loop");
    }

    #[test]
    fn the_item_that_kills_is_found_and_no_other() {
        for (count, killers, most) in [
            (1, vec![0], 3),
            (8, vec![7], 3),
            (60, vec![31], 3),
            (400, vec![399], 3),
            (10_000, vec![5_000], 6),
            (60, vec![3, 4], 8),
            (9, vec![0, 4, 8], 9),
            (100, vec![], 0),
        ] {
            let (deaths, condemned) = deaths(count, |nth| killers.contains(&nth));
            let want: Vec<WorkItem> = killers.iter().map(|nth| item(*nth)).collect();
            let mut found = condemned;
            found.sort();
            assert_eq!(found, want, "of {count}");
            assert!(deaths <= most, "{deaths} deaths for {killers:?} of {count}");
        }
    }

    #[test]
    fn a_death_that_is_not_in_a_row_proves_nothing() {
        let mut note = TakeoverNote::default();
        let next = |note: TakeoverNote| note.succeed("next", true);
        for nth in [0, 0, 1, 0, 0, 1, 1, 0] {
            note.hold(&[item(nth)]);
            note = next(note);
            assert!(note.condemned().is_empty() && note.is_suspicious(), "{note:?}");
        }
        // An owner that has caught up clears it.
        for _ in 0..5 {
            note.hold(&[item(0)]);
            note = next(note);
            note.hold(&[item(0)]);
            note.pass();
            assert!(note.is_suspicious() && note.forget_except(&HashSet::new()) && !note.is_suspicious());
        }
        // No work in progress: killed from outside.
        note.hold(&[item(0)]);
        note = next(next(next(next(note))));
        assert!(note.condemned().is_empty());
        // The writer did not crash; it only lost the shard.
        for _ in 0..5 {
            note.hold(&[item(0)]);
            note = note.succeed("next", false);
        }
        assert!(note.condemned().is_empty());
    }

    #[test]
    fn a_watched_execution_stays_suspect() {
        let (WorkItem::Execution(watched), WorkItem::Execution(other)) = (item(1), item(2)) else { panic!() };
        let mut note = TakeoverNote::default();
        assert!(note.is_blank() && !note.forget_except(&HashSet::new()));
        note.hold(&[item(1), item(2)]);
        assert!(!note.is_blank());
        let mut note = note.succeed("next", true);
        let all = HashSet::from([watched.clone(), other]);
        assert!(!note.forget_except(&all) && note.is_suspicious());
        assert!(note.forget_except(&HashSet::from([watched])) && note.is_suspicious());
        // Its second crash is counted after the first.
        note.hold(&[item(1)]);
        let mut note = note.succeed("after", true);
        note.hold(&[item(1)]);
        assert!(note.succeed("third", true).is_condemned(&item(1)));
    }

    #[test]
    fn groups_keep_the_order_and_suspects_apart() {
        let mut note = TakeoverNote::default();
        note.hold(&[item(2), item(3)]);
        let note = note.succeed("next", true);
        let groups = note.split(0..7_usize, 3, |nth| item(*nth));
        assert_eq!(groups, [vec![0, 1], vec![2], vec![3], vec![4, 5, 6]]);
        assert_eq!(TakeoverNote::decode(&note.encode()), note);
        assert_eq!(TakeoverNote::decode(b"{"), TakeoverNote::default());
    }
}
