//! Plan of kills, derived from the seed: process, moment and conversation.

use std::collections::{BTreeMap, HashMap, HashSet};

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;

use super::script::{TURN_CALLS, has_calls};

/// Maximum additional kills of a conversation, to replace kills that other conversations missed.
const SPARE_KILLS: u32 = 2;
/// Percentage of unplanned moments to use for late and owed kills.
const LATE_CHANCE: u32 = 30;

/// Identity of a process of the agent in requests to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProcessLife {
    /// Number of the slot of the process.
    pub(crate) replica: usize,
    /// Number of earlier processes in the slot.
    pub(crate) life: u64,
}

impl ProcessLife {
    /// Parses `1.17`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (replica, life) = text.trim().split_once('.')?;
        Some(Self { replica: replica.parse().ok()?, life: life.parse().ok()? })
    }
}

/// Externally observable moments of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KillMoment {
    /// The provider received a request, and has not answered.
    ModelAsked,
    /// The provider has answered.
    ModelAnswered,
    /// A tool runs.
    ToolWorks,
    /// A tool has answered.
    ToolAnswered,
}

impl KillMoment {
    const ALL: [Self; 4] = [Self::ModelAsked, Self::ModelAnswered, Self::ToolWorks, Self::ToolAnswered];

    /// Returns whether a turn has such a moment.
    fn is_in(self, turn: usize) -> bool {
        matches!(self, Self::ModelAsked | Self::ModelAnswered) || has_calls(turn)
    }
}

/// Planned and completed kills of a run.
#[derive(Debug, Default)]
pub(crate) struct KillPlan {
    /// By conversation: turns and moments of kills.
    places: HashMap<u32, HashSet<(usize, KillMoment)>>,
    /// By conversation: kills that were due while its process was down.
    due: HashMap<u32, u32>,
    /// Kills that conversations did not reach before their end.
    owed: u32,
    /// By conversation: kills, and their maximum.
    killed: HashMap<u32, (u32, u32)>,
    /// By conversation: process of the last request to the provider.
    holders: HashMap<u32, ProcessLife>,
    dead: HashSet<ProcessLife>,
    moments: BTreeMap<KillMoment, u64>,
}

impl KillPlan {
    /// Distributes kills over conversations at distinct random moments.
    pub(crate) fn new(conversations: u32, kills: u32, random: &mut StdRng) -> Self {
        let mut plan = Self::default();
        let all: Vec<(usize, KillMoment)> = (0..=TURN_CALLS.len())
            .flat_map(|turn| KillMoment::ALL.map(|moment| (turn, moment)))
            .filter(|(turn, moment)| moment.is_in(*turn))
            .collect();
        for conversation in 0..conversations {
            let share = kills / conversations + u32::from(conversation < kills % conversations);
            let mut places = all.clone();
            places.shuffle(random);
            plan.owed += share.saturating_sub(u32::try_from(places.len()).unwrap_or(u32::MAX));
            places.truncate(share as usize);
            plan.places.insert(conversation, places.into_iter().collect());
            plan.killed.insert(conversation, (0, share + SPARE_KILLS));
        }
        plan
    }

    /// Records the process of a conversation.
    pub(crate) fn held_by(&mut self, conversation: u32, process: ProcessLife) {
        self.holders.insert(conversation, process);
    }

    /// Returns the process to kill now.
    pub(crate) fn victim(
        &mut self,
        conversation: u32,
        turn: usize,
        moment: KillMoment,
        random: &mut StdRng,
    ) -> Option<ProcessLife> {
        let due = self.due.entry(conversation).or_default();
        let is_planned =
            self.places.get_mut(&conversation).is_some_and(|places| places.remove(&(turn, moment)));
        *due += u32::from(is_planned);
        let (kills, max_kills) = self.killed.entry(conversation).or_insert((0, SPARE_KILLS));
        let is_spare = *due == 0 && self.owed > 0 && *kills < *max_kills;
        // Otherwise all late kills would hit the first moment after a crash: the model call.
        if !is_planned && (*due == 0 && !is_spare || random.random_range(0..100) >= LATE_CHANCE) {
            return None;
        }
        let process = *self.holders.get(&conversation)?;
        if !self.dead.insert(process) {
            return None;
        }
        if is_spare {
            self.owed -= 1;
        } else {
            *due -= 1;
        }
        *kills += 1;
        *self.moments.entry(moment).or_default() += 1;
        Some(process)
    }

    /// Records the end of a conversation, whose unreached kills become owed.
    pub(crate) fn ended(&mut self, conversation: u32) {
        let places = self.places.remove(&conversation).map_or(0, |places| places.len());
        self.owed += self.due.remove(&conversation).unwrap_or_default();
        self.owed += u32::try_from(places).unwrap_or_default();
    }

    /// Returns the number of owed kills.
    pub(crate) fn owed(&self) -> u32 {
        self.owed
    }

    /// Returns the kills by moment.
    pub(crate) fn moments(&self) -> BTreeMap<KillMoment, u64> {
        self.moments.clone()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// Sequential conversations, whose process restarts immediately after each kill.
    #[test]
    fn every_kill_of_the_plan_happens_and_none_twice_to_a_life() {
        for (conversations, kills) in [(12, 24), (200, 500), (5, 3)] {
            let mut random = StdRng::seed_from_u64(u64::from(kills));
            let mut plan = KillPlan::new(conversations, kills, &mut random);
            let mut victims = HashSet::new();
            let mut life = 0;
            for conversation in 0..conversations {
                for turn in 0..=TURN_CALLS.len() {
                    for moment in KillMoment::ALL.into_iter().filter(|moment| moment.is_in(turn)) {
                        plan.held_by(conversation, ProcessLife { replica: 0, life });
                        if let Some(victim) = plan.victim(conversation, turn, moment, &mut random) {
                            assert!(victims.insert(victim), "{victim:?} dies twice");
                            life += 1;
                        }
                    }
                }
                plan.ended(conversation);
            }
            assert_eq!(victims.len(), kills as usize);
            assert_eq!(plan.moments().values().sum::<u64>(), u64::from(kills));
        }
    }

    #[test]
    fn a_kill_that_finds_its_process_dead_comes_later() {
        let mut random = StdRng::seed_from_u64(1);
        let mut plan = KillPlan::new(2, 2, &mut random);
        let first = ProcessLife { replica: 0, life: 0 };
        let all = |plan: &mut KillPlan, random: &mut StdRng, conversation| {
            let mut victims = Vec::new();
            for turn in 0..=TURN_CALLS.len() {
                for moment in KillMoment::ALL.into_iter().filter(|moment| moment.is_in(turn)) {
                    victims.extend(plan.victim(conversation, turn, moment, random));
                }
            }
            victims
        };
        plan.held_by(0, first);
        plan.held_by(1, first);
        assert_eq!(all(&mut plan, &mut random, 0), [first]);
        assert_eq!(all(&mut plan, &mut random, 1), [], "the process of both is dead");
        let second = ProcessLife { replica: 0, life: 1 };
        plan.held_by(1, second);
        let moments = (0..100).filter_map(|_| plan.victim(1, 0, KillMoment::ModelAsked, &mut random));
        assert_eq!(moments.collect::<Vec<_>>(), [second]);
    }

    #[test]
    fn processes_name_themselves() {
        assert_eq!(ProcessLife::read(" 1.17\r"), Some(ProcessLife { replica: 1, life: 17 }));
        assert_eq!(ProcessLife::read("1"), None);
    }
}
