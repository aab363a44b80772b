//! Scripted tests of callees that wait for people: the caller's timers stop, also after a takeover.

use super::check;

stories! {
    a_child_that_waits_for_a_person_stops_the_clock_of_its_parent: "
        start x boss | began x, child x.k#1
        begin x.k#1 | began x-k1, waits x-k1
        report | -
        at 100000 | -
        approve x-k1 | continues x-k1, task x-k1.a#1, yes
        report | -
        at 101999 | -
        at 102000 | drop x.k#1, finish x failure
    ";
    without_the_report_the_clock_runs: "
        start x boss | began x, child x.k#1
        begin x.k#1 | began x-k1, waits x-k1
        at 2000 | drop x.k#1, finish x failure
    ";
    a_forged_report_is_quarantined: "
        start x boss | began x, child x.k#1
        begin x.k#1 | began x-k1, waits x-k1
        report forged | aside SINEW-6034
        at 2000 | drop x.k#1, finish x failure
    ";
    the_clock_stands_across_takeovers_and_reports_are_sent_again: "
        start x boss | began x, child x.k#1
        begin x.k#1 | began x-k1, waits x-k1
        report | -
        takeover | waits x-k1, child x.k#1
        report | -
        at 100000 | -
        takeover | waits x-k1, child x.k#1
        approve x-k1 | continues x-k1, task x-k1.a#1, yes
        takeover | task x-k1.a#1, continues x-k1, child x.k#1
        at 100500 | -
        report | -
        at 102499 | -
        at 102500 | drop x.k#1, finish x failure
    ";
    an_evicted_child_reports_once: "
        start x boss | began x, child x.k#1
        begin x.k#1 | began x-k1, waits x-k1
        report | -
        evict | -
        pause x-k1 | loaded 1, yes
        resume x-k1 | yes
    ";
    a_question_of_an_agent_stops_the_clock_of_its_task: "
        start x slow | began x, task x.a#1
        callee x.a#1 q vote | began q, waits q
        report | -
        at 100000 | -
        approve q by ada | finish q success and continues, yes
        report | -
        at 101000 | -
        x.a ok | finish x success
    ";
    a_client_cannot_stop_a_clock: "
        start x slow | began x, task x.a#1
        start q vote | began q
        at 2000 | drop x.a#1, finish x failure
    ";
    a_report_to_a_task_that_is_over_means_nothing: "
        start x slow | began x, task x.a#1
        callee x.a#1 q vote | began q, waits q
        x.a ok | finish x success
        report | -
    ";
}
