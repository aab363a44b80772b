//! Scripted tests of one executor's shards: an input, `|`, and the resulting actions.
//!
//! Inputs: `poll AT OWNERS LIVING` (owners of shards 0, 1, … as `a,b,-`; living executors as `a,b`), `won N`, `missed N`,
//! `end N drained|fenced|lost|died`, `owner N NAME`, `anew`, `leave`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::manager::{LoopEnd, ManagerAction, ShardManager};
use crate::membership::{FleetView, LastHeartbeat};

/// Runs a script of the executor `a` on a mesh of two shards.
#[track_caller]
pub(super) fn check(script: &str) {
    let mut manager = ShardManager::new("a", 2.try_into().unwrap(), Duration::from_secs(6));
    let (mut told, mut expected) = (String::new(), String::new());
    for (nth, line) in script.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let (input, follows) = line.split_once('|').unwrap_or((line, ""));
        let words: Vec<&str> = input.split_whitespace().collect();
        let actions = tell(&mut manager, nth as u64, &words);
        let actions: Vec<String> = actions.iter().map(describe).collect();
        let actions = if actions.is_empty() { "-".to_owned() } else { actions.join(", ") };
        let _ = writeln!(told, "{} | {actions}", input.trim());
        let _ = writeln!(expected, "{} | {}", input.trim(), follows.trim());
    }
    assert_eq!(told, expected, "\n{told}");
}

fn tell(manager: &mut ShardManager, nth: u64, words: &[&str]) -> Vec<ManagerAction> {
    let number = |word: &str| word.parse::<u32>().unwrap();
    match words {
        ["poll", at, owners, living] => {
            let owner = |name: &str| (name != "-").then(|| name.to_owned());
            let owners: BTreeMap<u32, (Option<String>, u64)> =
                (0..).zip(owners.split(',')).map(|(shard, name)| (shard, (owner(name), 7))).collect();
            let heartbeat = LastHeartbeat { revision: nth, silent: Duration::ZERO };
            let members = living.split(',').map(|id| (id.to_owned(), heartbeat)).collect();
            let at = Duration::from_secs(at.parse().unwrap());
            manager.handle_fleet(at, &FleetView { members, owners })
        }
        ["won", shard] => manager.handle_claimed(number(shard), true),
        ["missed", shard] => manager.handle_claimed(number(shard), false),
        ["end", shard, how] => {
            let end = match *how {
                "drained" => LoopEnd::Drained,
                "fenced" => LoopEnd::Fenced,
                "lost" => LoopEnd::Lost,
                "died" => LoopEnd::Died,
                other => panic!("no such end: {other}"),
            };
            manager.handle_end(number(shard), end)
        }
        ["owner", shard, name] => manager.handle_owner(number(shard), (*name != "-").then_some(*name)),
        ["anew"] => manager.handle_new_stream(),
        ["leave"] => manager.leave(),
        other => panic!("no such input: {other:?}"),
    }
}

fn describe(action: &ManagerAction) -> String {
    match action {
        ManagerAction::Open { shard, pause, died } => {
            let pause = if pause.is_zero() { "" } else { " later" };
            let died = if *died { " after a panic" } else { "" };
            format!("open {shard}{pause}{died}")
        }
        ManagerAction::Stop(shard) => format!("stop {shard}"),
        ManagerAction::Claim { shard, revision } => format!("claim {shard} at {revision}"),
        ManagerAction::Release(shard) => format!("release {shard}"),
        ManagerAction::ReadOwner(shard) => format!("read owner {shard}"),
    }
}

macro_rules! stories {
    ($($name:ident: $script:literal;)*) => {
        /// All scripts.
        pub(super) const ALL: &[&str] = &[$($script,)*];

        $(#[test]
        fn $name() {
            check($script);
        })*
    };
}

stories! {
    free_shards_are_claimed: "
        poll 0 -,- a | claim 0 at 7, claim 1 at 7
        won 0 | open 0
        missed 1 | -
    ";
    a_share_is_claimed_beside_a_living_executor: "
        poll 0 -,- a,b | claim 0 at 7
    ";
    shards_of_living_executors_are_left: "
        poll 0 b,b b,c | -
        poll 1 b,c a,b,c | -
    ";
    shards_of_the_dead_are_claimed: "
        poll 0 b,b a | claim 0 at 7, claim 1 at 7
    ";
    a_recorded_shard_without_a_loop_is_opened: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,a a | -
    ";
    a_shard_too_many_is_handed_over: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,a a,b | stop 1
        end 1 drained | release 1
        poll 2 a,- a,b | -
    ";
    a_shard_too_many_of_a_process_of_the_same_name_is_released: "
        poll 0 a,a a,b | release 1, open 0
        poll 1 a,- a,b | -
    ";
    a_stolen_shard_is_stopped_and_not_released: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,b a,b | stop 1
        end 1 drained | -
    ";
    a_stolen_shard_that_is_lost_is_not_released: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,b a,b | stop 1
        end 1 lost | -
    ";
    a_stolen_shard_that_came_back_is_opened_anew: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,b a,b | stop 1
        poll 2 a,a a | -
        end 1 drained | -
        poll 3 a,a a | open 1
    ";
    a_shard_that_stops_is_not_claimed: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,b a,b | stop 1
        poll 2 a,- a | -
        end 1 fenced | -
        poll 3 a,- a | claim 1 at 7
        won 1 | open 1
    ";
    a_claim_for_a_loop_that_runs_opens_no_second: "
        poll 0 a,a a | open 0, open 1
        poll 1 a,- a | claim 1 at 7
        won 1 | -
    ";
    a_fenced_loop_that_is_recorded_is_opened_again: "
        poll 0 a,a a | open 0, open 1
        end 0 fenced | read owner 0
        owner 0 a | open 0 later
    ";
    a_fenced_loop_that_is_recorded_for_another_ends: "
        poll 0 a,a a | open 0, open 1
        end 0 fenced | read owner 0
        owner 0 b | -
    ";
    a_fenced_loop_whose_record_cannot_be_read_ends: "
        poll 0 a,a a | open 0, open 1
        end 0 fenced | read owner 0
        owner 0 - | -
        poll 1 a,a a | open 0
    ";
    a_poll_before_the_record_is_read_opens_nothing: "
        poll 0 a,a a | open 0, open 1
        end 0 fenced | read owner 0
        poll 1 a,a a | -
        owner 0 a | open 0 later
    ";
    a_lost_shard_is_opened_again: "
        poll 0 a,a a | open 0, open 1
        end 0 lost | open 0 later
    ";
    a_panic_is_told_to_the_next_loop: "
        poll 0 a,a a | open 0, open 1
        end 0 died | open 0 later after a panic
    ";
    a_drained_loop_that_was_not_stopped_goes_on: "
        poll 0 a,a a | open 0, open 1
        end 0 drained | open 0
    ";
    leaving_releases_all_shards: "
        poll 0 a,a a | open 0, open 1
        leave | stop 0, stop 1
        end 0 drained | release 0
        end 1 lost | release 1
    ";
    leaving_a_fenced_shard_releases_what_is_recorded: "
        poll 0 a,a a | open 0, open 1
        leave | stop 0, stop 1
        end 0 fenced | read owner 0
        owner 0 a | release 0
        end 1 fenced | read owner 1
        owner 1 b | -
    ";
    leaving_after_a_panic_releases: "
        poll 0 a,a a | open 0, open 1
        leave | stop 0, stop 1
        end 0 died | release 0
    ";
    a_new_stream_opens_all_shards_again: "
        poll 0 a,a a | open 0, open 1
        anew | stop 0, stop 1
        anew | -
        end 0 drained | open 0
        end 1 fenced | read owner 1
        owner 1 a | open 1 later
    ";
    leaving_wins_over_a_new_stream: "
        poll 0 a,a a | open 0, open 1
        anew | stop 0, stop 1
        leave | stop 0, stop 1
        end 0 drained | release 0
    ";
    the_end_of_an_unknown_loop_means_nothing: "
        end 0 drained | -
        owner 0 a | -
        leave | -
    ";
    a_stranger_owns_nothing: "
        poll 0 b,b b | -
    ";
}
