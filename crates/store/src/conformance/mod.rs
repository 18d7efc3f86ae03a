//! The claims that every back end keeps.
//!
//! A claim is a function that panics when it does not hold. [`conformance_tests!`](crate::conformance_tests)
//! makes a test of each for one back end; [`model`] sends a random walk over all calls to a back end and to
//! [`Memory`](crate::Memory) side by side.

use std::sync::Arc;
use std::time::Duration;

use crate::Store;

mod appends;
mod commits;
mod dedupe;
mod fanout;
mod ground;
mod letters;
pub mod model;
mod ownership;
mod reading;
mod routes;
mod rows;
mod schedules;
mod tickets;

/// How a claim gets at a back end.
pub trait Harness: Sync {
    /// The store: empty when the claim begins, the same one each time it is asked for.
    fn store(&self) -> Arc<dyn Store>;

    /// Another handle on the same data, as another program would have it. `None` where only one can be.
    fn second(&self) -> Option<Arc<dyn Store>>;

    /// From now on the store's clock, as [`now`](crate::Timers::now) tells it and as everything in the store is
    /// measured by, is so much later. For all handles.
    fn advance(&self, by: Duration);

    /// How many to take of something where the claim is about many.
    fn many(&self, wanted: usize) -> usize {
        wanted
    }
}

/// A claim with its name.
type Claim = (&'static str, fn(&dyn Harness));

macro_rules! list {
    ([] $($module:ident: $($claim:ident)*;)*) => {
        /// All claims.
        const CLAIMS: &[Claim] = &[
            $($((concat!(stringify!($module), "::", stringify!($claim)), $module::$claim)),*),*
        ];
    };
}

/// Checks the claim of that name.
///
/// # Panics
/// When the claim does not hold, or there is none of that name.
pub fn check(name: &str, harness: &dyn Harness) {
    let claim = CLAIMS.iter().find(|(own, _)| *own == name);
    let (_, claim) = claim.unwrap_or_else(|| panic!("there is no claim {name}"));
    claim(harness);
}

crate::each_claim!(list, []);

/// Makes a test of every claim: `conformance_tests!(Harness::new())`, with an expression that makes a
/// [`Harness`] with an empty store.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::each_claim!($crate::claim_tests, [$harness]);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! claim_tests {
    ([$harness:expr] $($module:ident: $($claim:ident)*;)*) => {
        $(mod $module {
            #[allow(unused_imports, reason = "the expression may name what stands around it")]
            use super::*;
            $(
                #[test]
                fn $claim() {
                    let name = concat!(stringify!($module), "::", stringify!($claim));
                    $crate::conformance::check(name, &$harness);
                }
            )*
        })*
    };
}

/// Names every claim, for `$each`.
#[doc(hidden)]
#[macro_export]
macro_rules! each_claim {
    ($each:path, [$($with:tt)*]) => {
        $each! {
            [$($with)*]
            routes:
                a_name_has_one_number
                the_same_deploy_changes_nothing
                a_deploy_leaves_others_alone
                a_subscription_is_the_same_while_stream_pattern_and_kind_are
                rows_of_a_subscription_that_ended_stay
                an_actor_says_whether_it_is_indexed
                a_subscription_from_the_beginning_has_all_before_it
                pauses_are_kept
                any_name_is_its_own
                the_longest_names_fit
                instances_are_listed_by_key
                deploys_that_meet_make_each_thing_once
            ;
            appends:
                events_have_places_in_the_order_sent
                rows_follow_in_the_append
                an_event_without_a_stream_goes_to_its_rows_alone
                an_empty_batch_is_a_batch
                an_instance_is_made_once_for_a_key
                the_same_key_in_two_tenants_is_two_instances
                an_append_after_an_answer_has_greater_places
                a_large_batch_is_one_batch
                one_event_reaches_very_many_instances
                an_event_comes_back_byte_for_byte
                an_event_of_a_commit_comes_back_byte_for_byte
                an_event_of_a_schedule_comes_back_byte_for_byte
                a_state_comes_back_byte_for_byte
            ;
            dedupe:
                a_doubled_append_is_the_first_one
                another_body_under_a_known_id_is_a_conflict
                a_batch_knows_its_own_duplicates
                only_what_is_compared_is_known
                an_id_is_known_in_its_tenant_stream_and_source
                an_id_is_new_again_when_its_window_is_over
                fifty_at_once_with_one_id_are_one_event
                batches_that_cross_append_each_id_once
                a_duplicate_says_what_became_of_the_first
            ;
            tickets:
                an_append_sent_twice_is_done_once
                an_append_has_its_answer_after_its_rows_are_gone
                a_commit_sent_twice_is_done_once
                a_fan_out_sent_twice_is_done_once
                a_firing_sent_twice_is_done_once
                copies_of_a_batch_that_arrive_together_are_done_once
                a_number_out_of_turn_is_refused
                a_lane_counts_for_itself
                a_refused_batch_leaves_its_number
                a_dead_boot_writes_nothing
                a_boot_that_never_was_writes_nothing
            ;
            fanout:
                pending_events_stand_by_place_and_subscription
                pending_events_come_within_their_bytes
                a_fan_out_turns_pending_events_into_rows
                what_is_not_pending_any_more_makes_nothing
                only_the_leaseholder_fans_out
                leases_that_meet_are_given_once
                a_broadcast_goes_in_pages
                streams_with_pending_events_are_found
            ;
            rows:
                rows_are_read_forward_and_backward
                a_group_is_read_by_place
                a_group_is_read_by_priority
                groups_are_found_by_their_first_rows
                a_row_outside_the_index_is_in_no_group
                a_row_stays_in_every_order_while_it_waits_on
                events_come_along_within_their_bytes
                requests_are_answered_in_their_order
                waiting_instances_are_found_in_pages_and_slots
                a_depth_is_counted_up_to_a_limit
                a_purge_goes_in_bounded_steps
            ;
            ownership:
                only_an_instance_with_rows_is_claimed
                a_claim_brings_the_instance_and_a_new_epoch
                what_a_live_boot_owns_is_left_to_it
                an_owner_claims_its_own_again_with_a_new_epoch
                a_release_of_another_epoch_changes_nothing
                an_orphan_is_taken_over_and_told
                claims_that_meet_give_each_instance_to_one
                the_dead_never_live_again
                a_judge_goes_by_the_stores_clock_and_spares_itself
                a_worker_is_seen_with_what_it_said
                who_leaves_is_not_live
                a_careful_mark_counts_until_the_row_is_committed
                a_command_on_rows_fences_their_owner
                others_hear_what_is_notified
            ;
            commits:
                a_commit_changes_state_and_version_and_takes_its_rows
                what_follows_is_in_the_commit
                a_commit_of_an_older_epoch_does_nothing
                a_commit_of_an_epoch_to_come_does_nothing
                a_commit_on_another_version_does_nothing
                a_commit_on_a_version_of_before_does_nothing
                a_commit_of_another_owner_does_nothing
                a_commit_after_release_does_nothing
                a_commit_after_a_take_over_does_nothing
                a_commit_of_an_instance_that_is_none_does_nothing
                a_row_that_is_gone_makes_nothing
                a_retry_waits_by_the_stores_clock
                a_delay_may_be_nothing_or_a_hundred_years
                a_superseded_row_just_goes
                many_instances_are_one_commit
                a_commit_and_a_take_over_that_meet_do_not_both_win
                a_commit_and_a_purge_that_meet_do_not_both_win
            ;
            letters:
                a_dead_letter_says_what_happened
                dead_letters_are_listed_by_tenant_and_actor
                a_redriven_letter_begins_anew_at_the_end
                a_row_may_die_and_be_redriven_again_and_again
                a_thousand_letters_are_redriven_at_once
                a_letter_that_is_not_there_is_left_out
                a_blocked_row_waits_for_a_command
                a_parked_event_gets_a_place_or_goes
            ;
            schedules:
                a_schedule_is_due_by_the_stores_clock
                a_schedule_comes_back_as_it_was_set
                the_same_spec_changes_nothing_another_replaces
                a_schedule_fires_once_and_is_over
                a_cron_goes_on_to_its_next_slot
                what_has_changed_since_it_was_read_does_not_fire
                what_follows_from_a_firing_is_in_it
                dispatchers_that_meet_fire_each_once
                a_schedule_is_set_and_cancelled_in_a_commit
            ;
            reading:
                a_stream_is_read_in_pages
                a_reader_that_goes_on_misses_nothing
                what_is_still_named_is_not_pruned
                a_prune_is_bounded
                a_pruned_event_is_known_in_its_window
                the_dead_who_own_nothing_go
            ;
        }
    };
}
