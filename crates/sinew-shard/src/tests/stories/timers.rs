//! Scripted tests of deadlines, and of results that wait while the owner or the broker is
//! unreachable.

use super::check;

stories! {
    a_delay_ends_in_time: "
        start x nap | began x
        at 699 | -
        at 700 | task x.a#1
        x.a ok | finish x success
    ";
    a_delay_ends_once: "
        start x nap | began x
        at 700 | task x.a#1
        at 700 | -
        at 9000 | -
    ";
    a_delay_survives_a_takeover: "
        start x nap | began x
        takeover | -
        at 699 | -
        at 700 | task x.a#1
    ";
    a_delay_survives_an_eviction: "
        start x nap | began x
        evict | -
        at 699 | -
        at 700 | loaded 1, task x.a#1
    ";
    a_delay_that_ended_during_a_takeover_is_noticed: "
        start x nap | began x
        at 300 | -
        takeover | -
        at 5000 | task x.a#1
    ";
    a_backoff_survives_a_takeover: "
        start x line | began x, task x.a#1
        x.a fail | -
        takeover | -
        at 299 | -
        at 300 | task x.a#2
    ";
    a_timeout_survives_a_takeover: "
        start x line | began x, task x.a#1
        x.a ok | task x.b#1
        takeover | task x.b#1
        at 2000 | drop x.b#1
    ";
    a_result_that_was_stored_in_time_beats_its_timeout: "
        start x line | began x, task x.a#1
        x.a ok | task x.b#1
        at 2500 unread | -
        x.b ok | task x.c#1
        at 2500 | -
    ";
    no_timer_fires_before_the_inbox_is_read: "
        start x nap | began x
        at 700 unread | -
        at 700 | task x.a#1
    ";
    agents_have_time_to_hand_in_results_after_an_outage: "
        start x line | began x, task x.a#1
        x.a ok | task x.b#1
        at 1000 | -
        outage 4000 | -
        at 4999 | -
        at 5000 | drop x.b#1
    ";
    tasks_that_are_sent_after_an_outage_have_their_time: "
        start x line | began x, task x.a#1
        at 500 | -
        outage 9000 | -
        x.a ok | task x.b#1
        at 2499 | -
        at 2500 | drop x.b#1
    ";
    other_timers_are_not_held_after_an_outage: "
        start x nap | began x
        outage 5000 | -
        at 700 | task x.a#1
    ";
    a_timeout_survives_an_eviction: "
        start x line | began x, task x.a#1
        x.a ok | task x.b#1
        evict | -
        at 2000 | loaded 1, drop x.b#1
    ";
    timers_of_many_executions_are_their_own: "
        all start x nap; start y nap | began x, began y
        at 700 | task x.a#1, task y.a#1
    ";
    a_timer_that_was_answered_in_time_is_void: "
        start x line | began x, task x.a#1
        x.a ok | task x.b#1
        at 1000 | -
        x.b ok | task x.c#1
        at 9000 | -
    ";
    a_paused_delay: "
        start x nap | began x
        pause x | yes
        at 5000 | -
        resume x | yes
        at 5000 | task x.a#1
    ";
}
