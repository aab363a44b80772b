//! Scripted tests of one shard; see [`super::script`].

use super::script::check;

macro_rules! stories {
    ($($name:ident: $script:literal;)*) => {
        /// All scripts of the group.
        pub(in crate::tests) const ALL: &[&str] = &[$($script,)*];

        $(#[test]
        fn $name() {
            check($script);
        })*
    };
}

pub(super) mod starts {
    use super::check;

    stories! {
        a_start_sends_the_first_task: "
            start x one | began x, task x.a#1
        ";
        the_same_start_again_begins_nothing: "
            start x one | began x, task x.a#1
            again | repeated x
        ";
        a_start_of_an_open_id_with_another_input_is_refused: "
            start x one | began x, task x.a#1
            start x one n 2 | no SINEW-6041
        ";
        a_start_of_an_open_id_with_another_workflow_is_refused: "
            start x one | began x, task x.a#1
            start x line | no SINEW-6041
        ";
        a_start_of_an_open_id_by_another_caller_is_refused: "
            start x one | began x, task x.a#1
            start x one by eve | no SINEW-6041
        ";
        a_closed_id_begins_nothing_again: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            again | late
            start x one | -
        ";
        a_closed_id_is_refused_to_another_caller: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            start x one by eve | no SINEW-6041
        ";
        a_closed_id_is_refused_to_another_input: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            start x one n 2 | no SINEW-6041
        ";
        an_unknown_workflow_is_refused: "
            start x nowhere | no none
        ";
        a_refused_start_may_be_sent_again: "
            start x nowhere | no none
            start x one by eve | began x, task x.a#1
        ";
        a_mode_that_cannot_be_read_is_refused: "
            start x one mode nonsense | no SINEW-6036
        ";
        a_key_that_does_not_make_the_id_is_refused: "
            start x one key k | no SINEW-6063
        ";
        a_client_cannot_claim_a_chain: "
            start x one chain a,one,b | began x, task x.a#1
        ";
        code_that_breaks_on_a_start_refuses_it: "
            start x broken | no SINEW-6030
            start y one | began y, task y.a#1
        ";
        two_starts_in_one_turn_are_two_executions: "
            all start x one; start y one | began x, began y, task x.a#1, task y.a#1
        ";
        the_same_start_twice_in_one_turn_begins_once: "
            all start x one; again | began x, repeated x, task x.a#1
        ";
        a_start_by_request_is_answered_once_it_is_stored: "
            start x one asked | began x, task x.a#1, answer begun
            start x one asked | repeated x, answer known
            start x one n 2 asked | answer SINEW-6041, no SINEW-6041
            start y nowhere asked | answer none, no none
        ";
        a_start_by_request_that_was_not_stored_is_not_answered: "
            lose | -
            start x one asked | began x, lost
            takeover | -
            start x one asked | began x, task x.a#1, answer begun
        ";
        a_start_by_request_and_by_command_is_one_start: "
            all start x one asked; start x one | began x, repeated x, task x.a#1, answer begun
            x.a ok | finish x success
            archive x | -
            start x one asked | repeated x, answer known
            start x one | -
        ";
        a_start_survives_a_takeover: "
            start x one | began x, task x.a#1
            takeover | task x.a#1
            again | repeated x
            x.a ok | finish x success
        ";
        a_start_that_was_not_stored_is_gone: "
            lose | -
            start x one | began x, lost
            takeover | -
            start x one | began x, task x.a#1
        ";
    }
}

pub(super) mod results {
    use super::check;

    stories! {
        a_result_ends_the_task: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
        ";
        a_result_counts_once: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            again | late
            x.a fail | -
        ";
        usage_of_an_answer_after_a_timeout_counts: "
            start x slow | began x, task x.a#1
            at 2000 | drop x.a#1, finish x failure
            x.a ok used | late, finish x failure used 1
            again | late
            archive x | -
        ";
        usage_of_an_answer_after_the_archive_is_added_to_it: "
            start x one | began x, task x.a#1
            cancel x | drop x.a#1, finish x cancelled, yes
            archive x | -
            x.a fail used | finish x cancelled used 1
            archive x | -
            again | late
            takeover | -
            reread | late, late, no the execution is not open
        ";
        usage_of_each_attempt_counts_once: "
            start x line | began x, task x.a#1
            x.a fail used | -
            at 300 | task x.a#2
            x.a hard used try 2 | finish x failure used 2
            again | -
            takeover | finish x failure used 2
            reread | repeated x
        ";
        usage_that_is_read_again_counts_for_no_other_attempt: "
            start x line | began x, task x.a#1
            x.a fail | -
            at 300 | task x.a#2
            x.a hard used try 2 | finish x failure used 1
            again | -
            archive x | -
            again | late
        ";
        usage_during_the_archiving_of_an_end_is_archived_before_the_execution_closes: "
            start x one | began x, task x.a#1
            cancel x | drop x.a#1, finish x cancelled, yes
            x.a fail used | finish x cancelled used 1
            close x 0 | -
            takeover | finish x cancelled used 1
            archive x | -
            takeover | -
        ";
        a_refusal_at_the_deadline_keeps_its_usage: "
            start x slow | began x, task x.a#1
            at 1900 | -
            x.a late used | -
            at 2000 | drop x.a#1, finish x failure used 1
        ";
        a_result_counts_once_in_one_turn: "
            start x one | began x, task x.a#1
            all x.a ok; x.a fail | finish x success
        ";
        a_result_of_another_agent_does_not_count: "
            start x one | began x, task x.a#1
            x.a ok from mallory | foreign
            x.a ok | finish x success
        ";
        a_result_without_proof_is_set_aside: "
            start x one | began x, task x.a#1
            x.a ok forged | aside SINEW-6034
            x.a ok | finish x success
        ";
        a_result_that_cannot_be_read_is_the_answer: "
            start x one | began x, task x.a#1
            x.a bad | aside SINEW-6033, finish x failure
        ";
        a_result_of_another_task_is_a_bad_answer: "
            start x one | began x, task x.a#1
            x.a other | aside SINEW-6033, finish x failure
        ";
        a_result_for_a_closed_execution_is_late: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            x.a ok | late
        ";
        a_failed_attempt_is_retried_after_its_delay: "
            start x line | began x, task x.a#1
            x.a fail | -
            at 100 | -
            at 400 | task x.a#2
            x.a ok try 2 | task x.b#1
        ";
        retries_end: "
            start x line | began x, task x.a#1
            x.a fail | -
            at 400 | task x.a#2
            x.a fail try 2 | -
            at 800 | task x.a#3
            x.a fail try 3 | finish x failure
        ";
        a_failure_that_a_retry_cannot_help_ends_at_once: "
            start x line | began x, task x.a#1
            x.a hard | finish x failure
        ";
        the_answer_to_an_earlier_attempt_is_late: "
            start x line | began x, task x.a#1
            x.a fail | -
            at 400 | task x.a#2
            x.a ok | late
            x.a ok try 2 | task x.b#1
        ";
        an_attempt_times_out: "
            start x line | began x, task x.a#1
            x.a ok | task x.b#1
            at 1999 | -
            at 2000 | drop x.b#1
            at 2300 | task x.b#2
        ";
        an_answer_after_the_timeout_changes_nothing: "
            start x line | began x, task x.a#1
            x.a ok | task x.b#1
            at 2000 | drop x.b#1
            x.b ok | late
            at 2300 | task x.b#2
            x.b ok try 2 | task x.c#1
        ";
        an_agent_that_gives_up_at_its_deadline_leaves_the_words_to_the_deadline: "
            start x line | began x, task x.a#1
            x.a ok | task x.b#1
            at 1000 | -
            x.b late | -
            at 2000 | drop x.b#1
        ";
        an_output_that_breaks_the_code_fails_the_task: "
            start x one | began x, task x.a#1
            x.a poison | finish x failure
        ";
        results_of_one_turn_are_taken_in_their_order: "
            start x wide | began x, task x.m_0#1, task x.m_1#1
            all x.m_0 ok; x.m_1 ok | task x.m_2#1
        ";
        a_map_never_has_more_in_flight_than_its_limit: "
            start x wide | began x, task x.m_0#1, task x.m_1#1
            x.m_0 ok | task x.m_2#1
            x.m_1 ok | -
            x.m_2 ok | task x.z#1
            x.z ok | finish x success
        ";
        a_direct_agent_is_a_task_like_others: "
            start x line | began x, task x.a#1
            x.a ok | task x.b#1
            x.b ok | task x.c#1
            x.c ok | finish x success
        ";
        an_evaluation_is_an_answer: "
            start x script | began x, evaluate x.e#1
            x.e ok | finish x success
        ";
        a_result_after_a_takeover_counts: "
            start x one | began x, task x.a#1
            takeover | task x.a#1
            x.a ok | finish x success
        ";
        a_result_for_nothing_is_late: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            takeover | -
            x.a ok | late
        ";
        a_message_on_another_subject_is_set_aside: "
            garbage commands | aside SINEW-6033
            garbage results | aside SINEW-6033
        ";
    }
}

pub(super) mod commands {
    use super::check;

    stories! {
        a_start_of_a_paused_workflow_is_kept: "
            keep one | -
            start x one | began x
            again | repeated x
            takeover | -
            resume x | task x.a#1, yes
            x.a ok | finish x success
        ";
        a_kept_child_waits_and_a_kept_start_can_be_cancelled: "
            keep line | -
            start x parent | began x, child x.k#1
            begin x.k#1 | began x-k1
            cancel x-k1 | finish x-k1 cancelled, yes
        ";
        a_cancelled_execution_drops_its_tasks: "
            start x one | began x, task x.a#1
            cancel x | drop x.a#1, finish x cancelled, yes
        ";
        a_cancel_is_obeyed_once: "
            start x one | began x, task x.a#1
            cancel x id c | drop x.a#1, finish x cancelled, yes
            cancel x id c | -
        ";
        another_caller_may_use_the_same_id: "
            start x one | began x, task x.a#1
            pause x id c | yes
            pause x id c by eve | no the execution is paused already
        ";
        a_command_to_nothing_is_refused: "
            cancel x | no the execution is not open
            pause x | no the execution is not open
            resume x | no the execution is not open
            approve x | no the execution is not open
            retry x | no the execution is not open
        ";
        a_command_to_a_closed_execution_is_refused: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            cancel x | no the execution is not open
            pause x | no the execution is not open
        ";
        a_command_to_an_ended_execution_is_refused: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            cancel x | no the execution has ended
        ";
        a_paused_execution_sends_nothing: "
            start x line | began x, task x.a#1
            pause x | yes
            x.a ok | -
            resume x | task x.b#1, yes
        ";
        a_result_that_comes_while_paused_is_kept: "
            start x line | began x, task x.a#1
            pause x | yes
            x.a ok | -
            takeover | -
            resume x | task x.b#1, yes
        ";
        a_retry_that_waits_while_paused_waits_on: "
            start x line | began x, task x.a#1
            x.a fail | -
            pause x | yes
            at 1000 | -
            resume x | yes
            at 1000 | task x.a#2
        ";
        pausing_twice_is_refused: "
            start x one | began x, task x.a#1
            pause x | yes
            pause x | no the execution is paused already
        ";
        resuming_what_is_not_paused_is_refused: "
            start x one | began x, task x.a#1
            resume x | no the execution is not paused
        ";
        a_person_answers: "
            start x ask | began x
            approve x | task x.a#1, yes
            x.a ok | finish x success
        ";
        a_person_answers_once: "
            start x ask | began x
            approve x | task x.a#1, yes
            approve x | no no node of the execution waits for a person
        ";
        a_question_that_is_not_asked_has_no_answer: "
            start x one | began x, task x.a#1
            approve x | no no node of the execution waits for a person
        ";
        a_node_that_does_not_wait_has_no_answer: "
            start x ask | began x
            approve x node a | no this node does not wait for a person; it may already be decided
        ";
        a_node_that_waits_is_answered_by_name: "
            start x ask | began x
            approve x node h | task x.a#1, yes
        ";
        only_the_person_who_may_decides: "
            start x vote | began x
            approve x by eve | no eve is not permitted to decide this
            approve x by ada | finish x success, yes
        ";
        a_person_may_reject: "
            start x ask | began x
            approve x reject | task x.a#1, yes
        ";
        a_failed_execution_is_retried: "
            start x one | began x, task x.a#1
            x.a hard | finish x failure
            retry x | task x.a#1, yes
            x.a ok try 1 | finish x success
        ";
        a_retried_map_takes_no_answer_to_its_first_run: "
            start x wide | began x, task x.m_0#1, task x.m_1#1
            x.m_1 ok | task x.m_2#1
            x.m_2 ok | -
            x.m_0 hard | finish x failure
            retry x | task x.m_0#1, yes
            again | -
            x.m_0 ok | task x.z#1
        ";
        a_closed_execution_is_retried: "
            start x one | began x, task x.a#1
            x.a hard | finish x failure
            archive x | -
            retry x | task x.a#1, yes
            x.a ok | finish x success
        ";
        a_retry_is_obeyed_once_although_it_closed_between: "
            start x one | began x, task x.a#1
            x.a hard | finish x failure
            archive x | -
            retry x id r | task x.a#1, yes
            x.a hard | finish x failure
            archive x | -
            retry x id r | -
        ";
        a_refused_retry_leaves_a_closed_execution_closed: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            retry x | no nothing in the execution failed or was cancelled
            takeover | -
        ";
        a_refused_retry_keeps_the_verdicts_beside_it: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            all pause x id c; retry x | no the execution is not open, no nothing in the execution failed or was cancelled
            takeover | -
            pause x id c | -
        ";
        an_end_that_a_retry_takes_back_in_the_same_turn_is_not_archived: "
            start x one | began x, task x.a#1
            all cancel x; retry x | drop x.a#1, task x.a#1, yes, yes
            x.a ok | finish x success
        ";
        a_successful_execution_is_not_retried: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            retry x | no nothing in the execution failed or was cancelled
        ";
        the_archive_of_an_earlier_end_closes_nothing: "
            start x one | began x, task x.a#1
            x.a hard | finish x failure
            retry x | task x.a#1, yes
            close x 0 | -
            x.a hard | finish x failure
            close x 1 | -
        ";
        a_running_execution_is_not_closed: "
            start x one | began x, task x.a#1
            close x 0 | -
            x.a ok | finish x success
        ";
        start_and_cancel_in_one_turn: "
            all start x one; cancel x | began x, drop x.a#1, finish x cancelled, yes
        ";
        a_cancel_before_its_start_is_refused: "
            all cancel x; start x one | began x, task x.a#1, no the execution is not open
        ";
        cancelling_an_execution_that_waits_for_a_person: "
            start x ask | began x
            cancel x | finish x cancelled, yes
        ";
        cancelling_an_execution_that_sleeps: "
            start x nap | began x
            cancel x | finish x cancelled, yes
            at 5000 | -
        ";
        a_verdict_survives_a_takeover: "
            start x one | began x, task x.a#1
            pause x id c | yes
            takeover | task x.a#1
            pause x id c | -
        ";
        a_refusal_survives_a_takeover: "
            pause x id c | no the execution is not open
            takeover | -
            pause x id c | -
        ";
    }
}

pub(super) mod takeovers {
    use super::check;

    stories! {
        a_takeover_repeats_what_has_no_end: "
            start x one | began x, task x.a#1
            takeover | task x.a#1
        ";
        a_takeover_repeats_tasks_under_the_same_ids: "
            start x wide | began x, task x.m_0#1, task x.m_1#1
            takeover | task x.m_0#1, task x.m_1#1
            x.m_0 ok | task x.m_2#1
        ";
        a_takeover_repeats_the_archiving: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            takeover | finish x success
            archive x | -
            takeover | -
        ";
        a_takeover_repeats_nothing_that_ended: "
            start x line | began x, task x.a#1
            x.a ok | task x.b#1
            takeover | task x.b#1
            takeover | task x.b#1
        ";
        a_takeover_repeats_the_start_of_a_child: "
            start x parent | began x, child x.k#1
            takeover | child x.k#1
        ";
        a_takeover_repeats_an_evaluation: "
            start x script | began x, evaluate x.e#1
            takeover | evaluate x.e#1
        ";
        a_takeover_of_an_empty_shard: "
            takeover | -
        ";
        a_takeover_forgets_closed_executions: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            archive x | -
            takeover | -
            cancel x | no the execution is not open
        ";
        a_takeover_keeps_a_pause: "
            start x line | began x, task x.a#1
            pause x | yes
            takeover | task x.a#1
            x.a ok | -
            resume x | task x.b#1, yes
        ";
        inputs_that_are_read_again_change_nothing: "
            start x line | began x, task x.a#1
            x.a ok | task x.b#1
            pause x | yes
            reread | repeated x, late
        ";
        inputs_that_are_read_again_after_the_end_change_nothing: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            cancel x | no the execution has ended
            archive x | -
            reread | late, no the execution is not open
        ";
        a_lost_append_sends_nothing: "
            start x one | began x, task x.a#1
            lose | -
            x.a ok | lost
        ";
        a_lost_append_is_decided_again: "
            start x line | began x, task x.a#1
            lose | -
            x.a ok | lost
            takeover | task x.a#1
            again | task x.b#1
        ";
        evicted_executions_are_loaded_for_their_inputs: "
            start x one | began x, task x.a#1
            evict | -
            x.a ok | loaded 1, finish x success
        ";
        evicted_executions_take_commands: "
            start x one | began x, task x.a#1
            evict | -
            cancel x | loaded 1, drop x.a#1, finish x cancelled, yes
        ";
        evicted_executions_know_their_start: "
            start x one | began x, task x.a#1
            evict | -
            start x one by eve | no SINEW-6041
        ";
        evicted_executions_are_taken_over: "
            start x one | began x, task x.a#1
            evict | -
            takeover | task x.a#1
        ";
        an_evicted_end_is_archived: "
            start x one | began x, task x.a#1
            x.a ok | finish x success
            evict | -
            archive x | loaded 1
        ";
        a_held_execution_is_not_worked_on: "
            start x one | began x, task x.a#1
            hold x | held x
            x.a ok | aside SINEW-6061
        ";
        a_held_execution_stays_held: "
            start x one | began x, task x.a#1
            hold x | held x
            takeover | -
            x.a ok | aside SINEW-6061
        ";
        a_held_execution_goes_on_when_it_is_resumed: "
            start x one | began x, task x.a#1
            hold x | held x
            resume x | task x.a#1, yes
            x.a ok | finish x success
        ";
        results_that_came_to_a_held_execution_count_once_it_is_resumed: "
            start x wide | began x, task x.m_0#1, task x.m_1#1
            hold x | held x
            x.m_1 ok | aside SINEW-6061
            resume x | task x.m_0#1, task x.m_2#1, yes
            x.m_0 ok | -
            x.m_2 ok | task x.z#1
        ";
        a_bad_result_that_came_to_a_held_execution_is_its_answer: "
            start x one | began x, task x.a#1
            hold x | held x
            x.a bad | aside SINEW-6061
            resume x | finish x failure, yes
        ";
        a_held_execution_is_cancelled: "
            start x one | began x, task x.a#1
            hold x | held x
            cancel x | drop x.a#1, finish x cancelled, yes
        ";
        a_held_execution_obeys_nothing_else: "
            start x one | began x, task x.a#1
            hold x | held x
            pause x | no the execution is held
            approve x | no the execution is held
            retry x | no the execution is held
        ";
        a_held_execution_keeps_its_id: "
            start x one | began x, task x.a#1
            hold x | held x
            again | repeated x
            start x one by eve | no SINEW-6041
        ";
        one_resume_takes_up_a_held_execution_that_was_paused: "
            start x line | began x, task x.a#1
            pause x | yes
            hold x | held x
            resume x | task x.a#1, yes
        ";
        other_executions_go_on_beside_a_held_one: "
            all start x one; start y one | began x, began y, task x.a#1, task y.a#1
            hold x | held x, task y.a#1
            y.a ok | finish y success
        ";
        an_execution_that_is_not_open_is_not_held: "
            hold x | -
            start x one | began x, task x.a#1
        ";
        a_resumed_execution_stays_resumed: "
            start x one | began x, task x.a#1
            hold x | held x
            resume x | task x.a#1, yes
            takeover | task x.a#1
            x.a ok | finish x success
        ";
    }
}

pub(super) mod children;
pub(super) mod timers;
pub(super) mod waits;
