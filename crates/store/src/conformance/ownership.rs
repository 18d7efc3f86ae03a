//! Owners, epochs, boots: who may work on an instance, and who is dead.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use evener_actor::id::{Boot, Epoch, InstanceId, QueueId, Version};

use super::Harness;
use super::ground::{Ground, HOUR, done, owned, part, part_with, retry, together};
use crate::batch::{DeadCause, End, InstanceCommit, Load, RowEnd, RowMade, Waiting, Worker};
use crate::workers::Note;
use crate::{Store, StoreError};

fn load() -> Load {
    Load::default()
}

/// All boots but those in `living` die.
fn kill_others(ground: &Ground<'_>, living: &[Boot]) -> Vec<Boot> {
    ground.harness.advance(HOUR);
    for boot in living {
        assert_eq!(ground.store.heartbeat(*boot, load()), Ok(true));
    }
    ground.store.judge(living[0], HOUR / 2).expect("judged")
}

pub(super) fn only_an_instance_with_rows_is_claimed(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let row = ground.feed_one("a");
    let first = ground.claim(row);
    assert_eq!(ground.commit(&[part(&first, vec![done(row.row)])]).committed, [true]);
    ground.store.release(ground.boot, &[owned(&first)]).expect("released");
    assert_eq!(ground.claim_of(ground.boot, &[row]), []);
    let none = RowMade { instance: InstanceId(row.instance.0 + 1_000), ..row };
    assert_eq!(ground.claim_of(ground.boot, &[none]), []);
    assert_eq!(ground.store.claim(ground.boot, &[]), Ok(vec![]));
    assert_eq!(ground.view(ground.plain, "a").epoch, first.epoch, "who is left out is as it was");
    // A row that waits for its time, or for a command, is a row.
    let row = ground.feed_one("a");
    let second = ground.claim(row);
    assert_eq!(ground.commit(&[part(&second, vec![retry(row.row, 1, HOUR)])]).committed, [true]);
    ground.store.release(ground.boot, &[owned(&second)]).expect("released");
    let third = ground.claim(row);
    let blocked = RowEnd { row: row.row, end: End::Blocked { attempts: 1, error: "b".to_owned() } };
    assert_eq!(ground.commit(&[part(&third, vec![blocked])]).committed, [true]);
    ground.store.release(ground.boot, &[owned(&third)]).expect("released");
    assert_eq!(ground.claim(row).version, Version(3));
}

pub(super) fn a_claim_brings_the_instance_and_a_new_epoch(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("b"), ground.row("a")]);
    let claimed = ground.claim_of(ground.boot, &rows);
    assert_eq!(claimed.len(), 2);
    for one in &claimed {
        assert_eq!((one.tenant, one.actor, one.version), (ground.tenant, ground.plain, Version(0)));
        assert_eq!((one.state.clone(), one.was_orphan), (None, false));
        let view = ground.view(ground.plain, one.key.as_str());
        assert_eq!((view.instance, view.slot), (one.instance, one.slot));
        assert_eq!((view.owner, view.epoch), (Some(ground.boot), one.epoch));
    }
    let a = claimed.iter().find(|one| one.key.as_str() == "a").expect("a is claimed");
    assert_eq!(ground.commit(&[part_with(a, "{\"n\":1}", vec![done(rows[0].row)])]).committed, [true]);
    ground.store.release(ground.boot, &[owned(a)]).expect("released");
    assert_eq!(ground.view(ground.plain, "a").owner, None);
    let second = ground.store.register("second").expect("a boot");
    let again = ground.claim_of(second, &[rows[2]]).pop().expect("claimed");
    assert!(again.epoch > a.epoch);
    assert_eq!((again.version, again.state), (Version(1), Some(Bytes::from_static(b"{\"n\":1}"))));
    assert!(!again.was_orphan, "it was given back");
    assert_eq!(ground.view(ground.plain, "b").owner, Some(ground.boot));
}

pub(super) fn what_a_live_boot_owns_is_left_to_it(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let row = ground.feed_one("a");
    let claimed = ground.claim(row);
    let second = ground.store.register("first").expect("a boot, of the same name");
    assert_ne!(second, ground.boot);
    assert_eq!(ground.claim_of(second, &[row]), []);
    assert_eq!(ground.commit(&[part(&claimed, vec![done(row.row)])]).committed, [true]);
}

pub(super) fn an_owner_claims_its_own_again_with_a_new_epoch(harness: &dyn Harness) {
    // After a claim whose answer was lost nobody else would ever run these rows.
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a")]);
    let first = ground.claim(rows[0]);
    let second = ground.claim(rows[0]);
    assert!(second.epoch > first.epoch && !second.was_orphan);
    assert_eq!(ground.commit(&[part(&first, vec![done(rows[0].row)])]).committed, [false]);
    assert_eq!(ground.commit(&[part(&second, vec![done(rows[0].row)])]).committed, [true]);
    assert_eq!(ground.places(rows[0]), [rows[1].row]);
}

pub(super) fn a_release_of_another_epoch_changes_nothing(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = [ground.feed_one("a"), ground.feed_one("b")];
    let claimed = rows.map(|row| ground.claim(row));
    let (slot, instance, epoch) = owned(&claimed[0]);
    let second = ground.store.register("second").expect("a boot");
    ground.store.release(second, &[(slot, instance, epoch)]).expect("nothing happens");
    ground.store.release(ground.boot, &[(slot, instance, Epoch(epoch.0 - 1))]).expect("nothing happens");
    ground
        .store
        .release(ground.boot, &[(slot, instance, Epoch(epoch.0 + 1)), owned(&claimed[1])])
        .expect("b");
    assert_eq!(ground.view(ground.plain, "a").owner, Some(ground.boot));
    assert_eq!(ground.view(ground.plain, "b").owner, None);
    assert_eq!(ground.commit(&[part(&claimed[0], vec![done(rows[0].row)])]).committed, [true]);
}

pub(super) fn an_orphan_is_taken_over_and_told(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a"), ground.row("b")]);
    let old = ground.claim(rows[0]);
    assert_eq!(ground.commit(&[part_with(&old, "1", vec![done(rows[0].row)])]).committed, [true]);
    let released = ground.claim(rows[2]);
    ground.store.release(ground.boot, &[owned(&released)]).expect("released");
    let second = ground.store.register("second").expect("a boot");
    assert_eq!(kill_others(&ground, &[second]), [ground.boot]);
    let taken = ground.claim_of(second, &rows);
    let of = |key: &str| taken.iter().find(|one| one.key.as_str() == key).expect("claimed");
    assert!(of("a").was_orphan && of("a").epoch > old.epoch);
    assert_eq!((of("a").version, of("a").state.clone()), (Version(1), Some(Bytes::from_static(b"1"))));
    assert!(!of("b").was_orphan, "its owner had given it back");
    // Once taken over it is an orphan no more.
    ground.store.release(second, &[owned(of("a"))]).expect("released");
    assert!(!ground.claim_of(second, &[rows[1]])[0].was_orphan);
}

pub(super) fn claims_that_meet_give_each_instance_to_one(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed((0..150).map(|number| ground.row(&format!("k{number}"))));
    let boots: Vec<Boot> =
        (0..6).map(|number| ground.store.register(&format!("w{number}")).expect("a boot")).collect();
    let stores = [Some(harness.store()), harness.second()];
    let claims = together(boots.len(), |thread| {
        let store = stores[thread % 2].as_ref().unwrap_or(&ground.store);
        let mut wanted: Vec<Waiting> =
            rows.iter().map(|row| Waiting { slot: row.slot, instance: row.instance }).collect();
        wanted.rotate_left(thread * 25);
        wanted
            .chunks(30)
            .flat_map(|some| super::ground::sure(|| store.claim(boots[thread], some)))
            .collect::<Vec<_>>()
    });
    let mut owners = BTreeMap::new();
    for (boot, claimed) in boots.iter().zip(&claims) {
        for one in claimed {
            let before = owners.insert(one.instance, (*boot, one.epoch));
            assert_eq!(before, None, "two owners of {}", one.key);
        }
    }
    // Who was locked by another claim just then is free, or has an owner who knows.
    for view in ground.store.instances(ground.plain, "", None, 1_000).expect("instances") {
        let known = owners.get(&view.instance).copied();
        assert_eq!(view.owner.map(|owner| (owner, view.epoch)), known);
    }
    assert!(!owners.is_empty());
    let left: Vec<RowMade> = rows.into_iter().filter(|row| !owners.contains_key(&row.instance)).collect();
    assert_eq!(ground.claim_of(ground.boot, &left).len(), left.len());
}

pub(super) fn the_dead_never_live_again(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let second = ground.store.register("second").expect("a boot");
    assert!(second > ground.boot);
    assert_eq!(kill_others(&ground, &[second]), [ground.boot]);
    for _ in 0..3 {
        assert_eq!(ground.store.heartbeat(ground.boot, load()), Ok(false));
    }
    assert_eq!(kill_others(&ground, &[second]), [], "the dead do not die again");
    let reborn = ground.store.register("first").expect("a boot");
    assert!(reborn > second, "a boot of its own");
    assert_eq!(ground.store.heartbeat(reborn, load()), Ok(true));
    assert_eq!(ground.store.heartbeat(ground.boot, load()), Ok(false));
    assert_eq!(ground.store.heartbeat(Boot(reborn.0 + 1_000), load()), Ok(false), "nor what never lived");
    let workers = ground.store.workers(100).expect("workers");
    let is_live = |boot: Boot| workers.iter().any(|worker| worker.boot == boot && worker.is_live);
    assert!(is_live(second) && is_live(reborn) && !is_live(ground.boot));
}

pub(super) fn a_judge_goes_by_the_stores_clock_and_spares_itself(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let second = ground.store.register("second").expect("a boot");
    assert_eq!(ground.store.judge(ground.boot, HOUR), Ok(vec![]), "who is heard lives");
    harness.advance(HOUR / 2);
    assert_eq!(ground.store.judge(ground.boot, HOUR), Ok(vec![]));
    assert_eq!(ground.store.heartbeat(second, load()), Ok(true));
    harness.advance(HOUR);
    assert_eq!(ground.store.judge(ground.boot, HOUR + HOUR / 4), Ok(vec![]), "second was heard since");
    // The judge has been silent for longest; it judges others alone.
    assert_eq!(ground.store.judge(ground.boot, HOUR / 2), Ok(vec![second]));
    assert_eq!(ground.store.heartbeat(ground.boot, load()), Ok(true));
    assert_eq!(ground.store.heartbeat(second, load()), Ok(false));
}

pub(super) fn a_worker_is_seen_with_what_it_said(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let name = "häst \"1\" 🎈";
    let second = ground.store.register(name).expect("a boot");
    let said = Load { in_flight: 3, active: u32::MAX >> 1, routes: 7 };
    harness.advance(HOUR);
    assert_eq!(ground.store.heartbeat(second, said), Ok(true));
    harness.advance(HOUR);
    let workers = ground.store.workers(100).expect("workers");
    let of = |boot: Boot| -> &Worker { workers.iter().find(|worker| worker.boot == boot).expect("a worker") };
    assert_eq!((of(second).name.as_str(), of(second).load, of(second).is_live), (name, said, true));
    assert!(of(second).silent >= HOUR && of(second).silent < HOUR + HOUR / 2, "{:?}", of(second).silent);
    assert!(of(ground.boot).silent >= 2 * HOUR);
    assert_eq!(of(ground.boot).load, load());
    assert_eq!(workers.iter().map(|worker| worker.boot).collect::<Vec<_>>(), [second, ground.boot]);
    assert_eq!(ground.store.workers(1).expect("workers").len(), 1);
}

pub(super) fn who_leaves_is_not_live(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let row = ground.feed_one("a");
    let second = ground.store.register("second").expect("a boot");
    ground.store.leave(ground.boot).expect("left");
    assert_eq!(ground.store.heartbeat(ground.boot, load()), Ok(false));
    assert!(matches!(
        ground.store.claim(ground.boot, &[Waiting { slot: row.slot, instance: row.instance }]),
        Err(StoreError::Fenced(_))
    ));
    let live: Vec<Boot> = ground
        .store
        .workers(100)
        .expect("workers")
        .into_iter()
        .filter(|worker| worker.is_live)
        .map(|worker| worker.boot)
        .collect();
    assert_eq!(live, [second]);
    assert_eq!(kill_others(&ground, &[second]), [], "it needs no judge");
    assert_eq!(ground.claim_of(second, &[row]).len(), 1);
}

pub(super) fn a_careful_mark_counts_until_the_row_is_committed(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a"), ground.row("b")]);
    let (a, b) = (ground.claim(rows[0]), ground.claim(rows[2]));
    let mark = |epoch: Epoch, ids: &[QueueId]| (a.slot, a.instance, epoch, ids.to_vec());
    let ids = [rows[0].row, QueueId(rows[2].row.0 + 1_000), rows[2].row];
    let answers = ground.store.mark_careful(
        ground.boot,
        &[
            mark(Epoch(a.epoch.0 - 1), &[rows[1].row]),
            mark(a.epoch, &ids),
            (b.slot, b.instance, b.epoch, vec![]),
        ],
    );
    assert_eq!(answers, Ok(vec![false, true, true]));
    let crashes = |row: RowMade| ground.rows(row).iter().map(|row| row.crashes).collect::<Vec<_>>();
    assert_eq!((crashes(rows[0]), crashes(rows[2])), (vec![1, 0], vec![0]));
    assert_eq!(ground.view(ground.plain, "a").version, a.version, "a mark is no commit");
    // The next owner counts on.
    let second = ground.store.register("second").expect("a boot");
    assert_eq!(ground.store.mark_careful(second, &[mark(a.epoch, &[rows[0].row])]), Ok(vec![false]));
    kill_others(&ground, &[second]);
    let taken = ground.claim_of(second, &rows[..1]).remove(0);
    let both = [rows[0].row, rows[1].row];
    assert_eq!(ground.store.mark_careful(second, &[mark(taken.epoch, &both)]), Ok(vec![true]));
    assert_eq!(crashes(rows[0]), [2, 1]);
    // One fails in peace, the other is given up.
    let dead = End::Dead { attempts: 0, cause: DeadCause::WorkerDied, error: "worker died".to_owned() };
    let ends = vec![RowEnd { row: rows[0].row, end: dead }, retry(rows[1].row, 1, Duration::ZERO)];
    let ticket = ground.ticket_of(second, 0);
    assert_eq!(
        ground.store.commit(ticket, &[part(&taken, ends)]).map(|report| report.committed),
        Ok(vec![true])
    );
    let row = &ground.rows(rows[0])[0];
    assert_eq!((row.id, row.attempts, row.crashes), (rows[1].row, 1, 0));
    let letter = ground.store.dead_letters(ground.tenant, None, 0, 9).expect("letters").remove(0);
    assert_eq!((letter.crashes, letter.cause), (2, DeadCause::WorkerDied));
}

pub(super) fn a_command_on_rows_fences_their_owner(harness: &dyn Harness) {
    for is_purge in [false, true] {
        let ground = Ground::of(harness, format!("tenant {is_purge}").parse().expect("a name"));
        let rows = ground.feed([ground.row("a"), ground.row("a")]);
        let claimed = ground.claim(rows[0]);
        let blocked = RowEnd { row: rows[0].row, end: End::Blocked { attempts: 3, error: "b".to_owned() } };
        assert_eq!(ground.commit(&[part(&claimed, vec![blocked])]).committed, [true]);
        let (slot, instance, _) = owned(&claimed);
        if is_purge {
            assert_eq!(ground.store.purge(slot, instance, 1), Ok(1));
        } else {
            assert_eq!(ground.store.unblock(slot, instance, &[rows[0].row], true), Ok(1));
        }
        let late = InstanceCommit {
            version: Version(1),
            version_after: Version(2),
            ..part_with(&claimed, "late", vec![done(rows[1].row)])
        };
        assert_eq!(ground.commit(&[late]).committed, [false]);
        assert_eq!(ground.view(ground.plain, "a").state, None);
        let mark = (slot, instance, claimed.epoch, vec![rows[1].row]);
        assert_eq!(ground.store.mark_careful(ground.boot, &[mark]), Ok(vec![false]));
        // Its owner takes it anew.
        let again = ground.claim(rows[1]);
        assert!(again.epoch > claimed.epoch && !again.was_orphan);
        assert_eq!(ground.commit(&[part(&again, vec![done(rows[1].row)])]).committed, [true]);
    }
}

pub(super) fn others_hear_what_is_notified(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let Some(second) = harness.second() else {
        // Where only one worker can be there is nobody to tell.
        ground.store.notify(&[Note::Look]).expect("nothing happens");
        return;
    };
    let hear = |store: &Arc<dyn Store>, boot: Boot| {
        let (to, heard) = mpsc::channel();
        let to = Mutex::new(to);
        let hear = Arc::new(move |note| {
            // Who waits may have heard enough.
            let _ = to.lock().expect("no hearer panics").send(note);
        });
        (store.listen(boot, hear).expect("a subscription"), heard)
    };
    let other = second.register("second").expect("a boot");
    let (listening, heard) = hear(&second, other);
    let row = ground.feed_one("a");
    let notes = [Note::Row(row), Note::Pending(ground.stream), Note::Schedule, Note::Routes];
    ground.store.notify(&notes).expect("told");
    // "Look" stands for any of them.
    let mut missing = notes.to_vec();
    while !missing.is_empty() {
        let note = heard.recv_timeout(Duration::from_secs(60)).expect("the others hear");
        missing.retain(|wanted| note != Note::Look && note != *wanted);
        if note == Note::Look {
            break;
        }
    }
    assert!(listening.is_listening());
    // Very many make no error, however long their text is.
    let many: Vec<Note> = (0..5_000).map(|n| Note::Row(RowMade { instance: InstanceId(n), ..row })).collect();
    ground.store.notify(&many).expect("told");
    heard.recv_timeout(Duration::from_secs(60)).expect("the others hear");
    drop(listening);
    let end = loop {
        if let Err(end) = heard.recv_timeout(Duration::from_secs(60)) {
            break end;
        }
    };
    assert_eq!(end, mpsc::RecvTimeoutError::Disconnected, "nobody hears for who has gone");
}
