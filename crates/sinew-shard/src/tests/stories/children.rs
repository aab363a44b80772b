//! Scripted tests of sub-workflows: starts, answers and rejections.

use super::check;

stories! {
    a_child_is_started_by_a_command: "
        start x parent | began x, child x.k#1
        begin x.k#1 | began x-k1, task x-k1.a#1
    ";
    a_child_is_started_once: "
        start x parent | began x, child x.k#1
        begin x.k#1 | began x-k1, task x-k1.a#1
        begin x.k#1 | repeated x-k1
    ";
    a_child_that_two_executors_start_is_one: "
        start x parent | began x, child x.k#1
        begin x.k#1 | began x-k1, task x-k1.a#1
        takeover | task x-k1.a#1, child x.k#1
        begin x.k#1 | repeated x-k1
    ";
    a_parent_that_is_cancelled_drops_its_child: "
        start x parent | began x, child x.k#1
        begin x.k#1 | began x-k1, task x-k1.a#1
        cancel x | drop x.k#1, finish x cancelled, yes
    ";
    a_child_that_ends_is_archived: "
        start x parent | began x, child x.k#1
        begin x.k#1 | began x-k1, task x-k1.a#1
        x-k1.a hard | finish x-k1 failure
    ";
    a_failed_child_is_retried_under_another_id: "
        start x parent | began x, child x.k#1
        x.k fail | -
        at 300 | child x.k#2
    ";
    a_takeover_tells_the_parent_of_a_rejected_child_again: "
        start x loop | began x, child x.k#1
        begin x.k#1 | rejected SINEW-6050, no SINEW-6050
        takeover | rejected SINEW-6050, child x.k#1
        answered | -
        takeover | child x.k#1
        x.k fail | finish x failure
    ";
    a_rejected_child_does_not_begin_while_its_parent_is_told: "
        start x loop | began x, child x.k#1
        begin x.k#1 | rejected SINEW-6050, no SINEW-6050
        begin x.k#1 | no SINEW-6050
        answered | -
    ";
    a_workflow_that_calls_itself_is_rejected: "
        start x loop | began x, child x.k#1
        begin x.k#1 | rejected SINEW-6050, no SINEW-6050
    ";
    a_rejected_child_fails_its_parent: "
        start x loop | began x, child x.k#1
        begin x.k#1 | rejected SINEW-6050, no SINEW-6050
        x.k fail | finish x failure
    ";
    a_child_that_is_closed_begins_nothing_again: "
        start x parent | began x, child x.k#1
        begin x.k#1 | began x-k1, task x-k1.a#1
        cancel x-k1 | drop x-k1.a#1, finish x-k1 cancelled, yes
        archive x-k1 | -
        begin x.k#1 | -
    ";
}
