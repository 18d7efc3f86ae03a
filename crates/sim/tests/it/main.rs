//! What the simulator promises: its worlds hold, a seed is a world, and what is broken on purpose is found.

use evener_sim::{Mutation, Options, find, run};

#[test]
fn a_seed_is_a_world() {
    for seed in [1, 2, 3, 7, 11] {
        let options = Options { seed, ..Options::default() };
        let (one, other) = (run(&options), run(&options));
        assert_eq!(one, other, "seed {seed} went two ways");
        assert!(one.accepted > 0 && one.steps > 1_000, "nothing happened in {one:?}");
    }
    let traces: std::collections::BTreeSet<u64> =
        (1..20).map(|seed| run(&Options { seed, steps: 200, ..Options::default() }).trace).collect();
    assert_eq!(traces.len(), 19, "worlds that are alike");
}

#[test]
fn worlds_hold() {
    // `cargo xtask sim` runs thousands.
    let failed = find(1, 60, None);
    assert!(failed.is_none(), "{failed:?}");
}

/// The mutation is found within so many seeds, by one of those claims.
fn is_found(mutation: Mutation, seeds: u64, claims: &[&str]) {
    let found = find(1, seeds, Some(mutation));
    let violation = found.and_then(|verdict| verdict.violation);
    let violation = violation.unwrap_or_else(|| panic!("{mutation:?} was not found in {seeds} worlds"));
    assert!(claims.contains(&violation.claim), "{mutation:?} was found by {violation}");
}

#[test]
fn a_store_without_a_fence_is_found() {
    is_found(Mutation::FenceDropped, 100, &["one owner commits", "each row ends once"]);
}

#[test]
fn a_forgotten_wake_is_found() {
    is_found(Mutation::WakeForgotten, 200, &["a wake is not forgotten"]);
}

#[test]
fn a_cursor_that_only_goes_forward_is_found() {
    is_found(Mutation::CursorOnly, 100, &["fifo starts in order", "everything comes to an end"]);
}

#[test]
fn a_batch_that_is_done_twice_is_found() {
    let claims =
        ["each event once", "accepted means committed", "batches in their order", "a number is used once"];
    is_found(Mutation::TicketIgnored, 100, &claims);
}

#[test]
fn a_release_by_who_is_not_the_owner_is_found() {
    is_found(Mutation::ReleaseUnchecked, 200, &["the owner alone gives back"]);
}

#[cfg(feature = "mutations")]
#[test]
fn a_row_that_runs_after_its_commit_is_found() {
    is_found(Mutation::GhostsRun, 100, &["what is committed does not run again"]);
}

#[cfg(feature = "mutations")]
#[test]
fn a_void_head_that_is_kept_is_found() {
    let claims = [
        "nothing is told before its commit",
        "each event is applied once",
        "emits stand on what is committed",
    ];
    is_found(Mutation::VoidHeadKept, 100, &claims);
}
