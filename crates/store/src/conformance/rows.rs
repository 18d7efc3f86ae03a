//! Rows of queues: every order, every limit, and who has any.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use evener_actor::event::Event;
use evener_actor::id::{GroupHash, InstanceId, QueueId, Slot};

use super::Harness;
use super::ground::{Ground, done, group, part};
use crate::batch::{NewEvent, NewRow, QueueRow, RowMade, RowOrder, RowsAnswer, RowsRequest, Waiting};

/// A row as it was sent: place, group, priority.
type Sent = (QueueId, GroupHash, i32);

/// An instance of `ranked` with rows of several groups and priorities, ties among them.
fn ranked(ground: &Ground<'_>) -> (RowMade, Vec<Sent>) {
    let groups = [None, Some("red"), Some("blue"), Some("red ")];
    let priorities = [0, i32::MIN, 7, i32::MAX, 7, -1, i32::MIN, i32::MAX, 0, 1, -1];
    let rows: Vec<NewRow> = (0..88)
        .map(|number| {
            ground.ranked_row("a", groups[number % groups.len()], priorities[number % priorities.len()])
        })
        .collect();
    let made = ground.feed(rows.clone());
    let sent = made.iter().zip(&rows).map(|(made, row)| (made.row, row.group_hash(), row.priority)).collect();
    (made[0], sent)
}

fn hash(row: &QueueRow) -> GroupHash {
    row.group.as_ref().map_or(GroupHash::NONE, GroupHash::of)
}

/// Reads to the end, page after page, each beginning behind the last row of the one before.
fn pages(
    ground: &Ground<'_>,
    of: RowMade,
    first: RowOrder,
    rows_max: u32,
    next: impl Fn(&QueueRow) -> RowOrder,
) -> Vec<QueueId> {
    let mut order = first;
    let mut found = Vec::new();
    let mut was_end = false;
    loop {
        let request = RowsRequest { order, rows_max, event_bytes_max: 0, ..Ground::request(of) };
        let RowsAnswer { rows, is_end } = ground.read(request);
        assert!(rows.len() <= rows_max as usize);
        assert!(!was_end || rows.is_empty(), "after the end there is nothing");
        assert!(is_end || rows.len() == rows_max as usize, "less than asked for is the end");
        assert!(rows.iter().all(|row| row.event.is_none()), "no bytes, no events");
        let Some(last) = rows.last() else {
            assert!(is_end);
            return found;
        };
        was_end = is_end;
        order = next(last);
        found.extend(rows.iter().map(|row| row.id));
        assert!(found.len() <= 1_000, "a page repeats itself: {found:?}");
    }
}

const PAGES: [u32; 4] = [1, 3, 22, 1_000];

pub(super) fn rows_are_read_forward_and_backward(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (of, sent) = ranked(&ground);
    ground.feed_one("a");
    let mut all: Vec<QueueId> = sent.iter().map(|(id, ..)| *id).collect();
    for rows_max in PAGES {
        let first = RowOrder::Forward { after: QueueId(0) };
        assert_eq!(pages(&ground, of, first, rows_max, |last| RowOrder::Forward { after: last.id }), all);
    }
    all.reverse();
    for rows_max in PAGES {
        let first = RowOrder::Backward { before: QueueId(i64::MAX) };
        assert_eq!(pages(&ground, of, first, rows_max, |last| RowOrder::Backward { before: last.id }), all);
    }
}

pub(super) fn a_group_is_read_by_place(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (of, sent) = ranked(&ground);
    for name in [None, Some("red"), Some("blue"), Some("red "), Some("empty")] {
        let wanted = name.map_or(GroupHash::NONE, |name| GroupHash::of(&group(name)));
        let mut ids: Vec<QueueId> =
            sent.iter().filter(|(_, group, _)| *group == wanted).map(|(id, ..)| *id).collect();
        assert_eq!(ids.len(), if name == Some("empty") { 0 } else { 22 });
        for rows_max in PAGES {
            let first = RowOrder::GroupForward { group: wanted, after: QueueId(0) };
            let next = |last: &QueueRow| RowOrder::GroupForward { group: wanted, after: last.id };
            assert_eq!(pages(&ground, of, first, rows_max, next), ids);
        }
        ids.reverse();
        for rows_max in PAGES {
            let first = RowOrder::GroupBackward { group: wanted, before: QueueId(i64::MAX) };
            let next = |last: &QueueRow| RowOrder::GroupBackward { group: wanted, before: last.id };
            assert_eq!(pages(&ground, of, first, rows_max, next), ids);
        }
    }
}

pub(super) fn a_group_is_read_by_priority(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (of, sent) = ranked(&ground);
    for name in [None, Some("red"), Some("blue"), Some("red ")] {
        let wanted = name.map_or(GroupHash::NONE, |name| GroupHash::of(&group(name)));
        let mut rows: Vec<Sent> = sent.iter().filter(|(_, group, _)| *group == wanted).copied().collect();
        rows.sort_by_key(|(id, _, priority)| (Reverse(*priority), *id));
        let ids: Vec<QueueId> = rows.iter().map(|(id, ..)| *id).collect();
        assert!(rows[0].2 == i32::MAX && rows[21].2 == i32::MIN, "the ends of the range are there");
        for rows_max in PAGES {
            let first = RowOrder::GroupPriority { group: wanted, after: None };
            let next = |last: &QueueRow| RowOrder::GroupPriority {
                group: wanted,
                after: Some((last.priority, last.id)),
            };
            assert_eq!(pages(&ground, of, first, rows_max, next), ids);
        }
        // Behind a row that is gone.
        let gone = (rows[0].2, QueueId(rows[0].0.0 - 1));
        let order = RowOrder::GroupPriority { group: wanted, after: Some(gone) };
        let answer = ground.read(RowsRequest { order, rows_max: 1, ..Ground::request(of) });
        assert_eq!(answer.rows[0].id, rows[0].0);
    }
}

pub(super) fn groups_are_found_by_their_first_rows(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (of, mut sent) = ranked(&ground);
    let many = (0..40).map(|number| ground.ranked_row("a", Some(&format!("group {number}")), number));
    let many: Vec<NewRow> = many.collect();
    let made = ground.feed(many.clone());
    sent.extend(made.iter().zip(&many).map(|(made, row)| (made.row, row.group_hash(), row.priority)));
    let firsts = |sent: &[Sent]| {
        let mut firsts = BTreeMap::new();
        for (id, group, _) in sent {
            firsts.entry(*group).or_insert(*id);
        }
        firsts.into_values().collect::<Vec<QueueId>>()
    };
    let look = |rows_max| {
        let next = |last: &QueueRow| RowOrder::Groups { after: Some(hash(last)) };
        pages(&ground, of, RowOrder::Groups { after: None }, rows_max, next)
    };
    assert_eq!(firsts(&sent).len(), 44);
    for rows_max in PAGES {
        assert_eq!(look(rows_max), firsts(&sent), "hashes below zero stand first");
    }
    // When the first row of a group is gone, the next one is the first.
    let claimed = ground.claim(of);
    let ends = sent.iter().take(4).map(|(id, ..)| done(*id)).collect();
    assert_eq!(ground.commit(&[part(&claimed, ends)]).committed, [true]);
    assert_eq!(look(3), firsts(&sent[4..]));
}

pub(super) fn a_row_outside_the_index_is_in_no_group(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let plain = NewRow { group: Some(group("red")), priority: 9, ..ground.row("a") };
    let made = ground.feed([plain.clone(), ground.row("a")]);
    let (red, none) = (GroupHash::of(&group("red")), GroupHash::NONE);
    for of in [red, none] {
        for order in [
            RowOrder::GroupForward { group: of, after: QueueId(0) },
            RowOrder::GroupBackward { group: of, before: QueueId(i64::MAX) },
            RowOrder::GroupPriority { group: of, after: None },
            RowOrder::Groups { after: None },
        ] {
            let answer = ground.read(RowsRequest { order, ..Ground::request(made[0]) });
            assert_eq!(answer, RowsAnswer { rows: vec![], is_end: true });
        }
    }
    let rows = ground.rows(made[0]);
    assert_eq!((rows.len(), rows[0].priority, rows[0].group.clone()), (2, 9, plain.group));
}

pub(super) fn a_row_stays_in_every_order_while_it_waits_on(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let made = ground.feed((0..3).map(|_| ground.ranked_row("a", Some("red"), 1)));
    let claimed = ground.claim(made[0]);
    let blocked = crate::batch::End::Blocked { attempts: 1, error: "b".to_owned() };
    let ends = vec![
        super::ground::retry(made[0].row, 1, super::ground::HOUR),
        crate::batch::RowEnd { row: made[1].row, end: blocked },
    ];
    assert_eq!(ground.commit(&[part(&claimed, ends)]).committed, [true]);
    let red = GroupHash::of(&group("red"));
    let ids: Vec<QueueId> = made.iter().map(|made| made.row).collect();
    for order in [
        RowOrder::Forward { after: QueueId(0) },
        RowOrder::GroupForward { group: red, after: QueueId(0) },
        RowOrder::GroupPriority { group: red, after: None },
    ] {
        let rows = ground.read(RowsRequest { order, ..Ground::request(made[0]) }).rows;
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
        assert!(rows[0].delay > super::ground::HOUR / 2 && rows[1].is_blocked && !rows[2].is_blocked);
    }
    let first =
        ground.read(RowsRequest { order: RowOrder::Groups { after: None }, ..Ground::request(made[0]) });
    assert_eq!(first.rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids[..1]);
}

pub(super) fn events_come_along_within_their_bytes(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let sizes = [100_usize, 50, 0, 51, 1, 0];
    let events: Vec<NewEvent> = sizes
        .iter()
        .map(|size| NewEvent {
            event: Event::new("t", vec![b'1'; *size]).with_id(format!("of {size}")),
            ..ground.event_to("", vec![ground.ranked_row("a", None, 0)])
        })
        .collect();
    let made = super::ground::new(ground.append(&events).remove(0)).1[0];
    let along = |order: RowOrder, event_bytes_max: usize| {
        let rows = ground.read(RowsRequest { order, event_bytes_max, ..Ground::request(made) }).rows;
        assert_eq!(rows.len(), 6);
        let is_there: Vec<bool> = rows.iter().map(|row| row.event.is_some()).collect();
        assert!(is_there.is_sorted_by(|a, b| a >= b), "a first part comes along: {is_there:?}");
        for row in &rows {
            let event = row.event.as_ref();
            assert!(event.is_none_or(|event| event.event.data.len() == row.event_bytes as usize));
        }
        is_there.into_iter().filter(|is_there| *is_there).count()
    };
    let forward = RowOrder::Forward { after: QueueId(0) };
    let by_priority = RowOrder::GroupPriority { group: GroupHash::NONE, after: None };
    for order in [forward, by_priority] {
        let wanted = [
            (0, 0),
            (1, 1),
            (99, 1),
            (100, 1),
            (149, 1),
            (150, 3),
            (200, 3),
            (201, 4),
            (202, 6),
            (usize::MAX, 6),
        ];
        for (bytes_max, count) in wanted {
            assert_eq!(along(order, bytes_max), count, "{bytes_max} bytes, {order:?}");
        }
    }
    let backward = RowOrder::Backward { before: QueueId(i64::MAX) };
    for (bytes_max, count) in [(0, 0), (1, 2), (51, 2), (52, 4), (101, 4), (102, 5), (202, 6)] {
        assert_eq!(along(backward, bytes_max), count, "{bytes_max} bytes backward");
    }
}

pub(super) fn requests_are_answered_in_their_order(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let made =
        ground.feed([ground.row("a"), ground.row("b"), ground.row("a"), ground.ranked_row("c", None, 1)]);
    let none = RowMade { instance: InstanceId(made[3].instance.0 + 1_000), ..made[0] };
    let in_another_slot = RowMade { slot: Slot::new((made[0].slot.number() + 1) % 1024), ..made[0] };
    let requests: Vec<RowsRequest> = [made[1], none, made[0], in_another_slot, made[3], made[1]]
        .into_iter()
        .map(Ground::request)
        .collect();
    let answers = ground.store.rows(&requests).expect("rows");
    let ids: Vec<Vec<QueueId>> =
        answers.iter().map(|answer| answer.rows.iter().map(|row| row.id).collect()).collect();
    let wanted = [
        vec![made[1].row],
        vec![],
        vec![made[0].row, made[2].row],
        vec![],
        vec![made[3].row],
        vec![made[1].row],
    ];
    assert_eq!(ids, wanted);
    assert!(answers.iter().all(|answer| answer.is_end));
    assert_eq!(ground.store.rows(&[]), Ok(vec![]));
}

pub(super) fn waiting_instances_are_found_in_pages_and_slots(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    assert_eq!(ground.store.waiting(0..1024, None, 9), Ok(vec![]));
    let rows = (0..300).map(|number| ground.row(&format!("k{}", number % 150)));
    let made = ground.feed(rows.collect::<Vec<_>>());
    let quiet = ground.claim(made[7]);
    let ends = vec![done(made[7].row), done(made[157].row)];
    assert_eq!(ground.commit(&[part(&quiet, ends)]).committed, [true]);
    let mut all: Vec<Waiting> =
        made.iter().map(|made| Waiting { slot: made.slot, instance: made.instance }).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|waiting| waiting.instance != quiet.instance);
    assert_eq!(all.len(), 149);
    let look = |slots: std::ops::Range<u16>, instances_max: u32| {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = ground.store.waiting(slots.clone(), after, instances_max).expect("waiting");
            assert!(page.len() <= instances_max as usize);
            let Some(last) = page.last() else { return found };
            after = Some(*last);
            found.extend(page);
            assert!(found.len() <= 1_000, "a page repeats itself");
        }
    };
    for instances_max in [1, 10, 1_000] {
        assert_eq!(look(0..1024, instances_max), all);
    }
    let mut in_parts = look(0..300, 7);
    assert!(in_parts.iter().all(|waiting| waiting.slot.number() < 300));
    in_parts.extend(look(300..301, 7));
    in_parts.extend(look(301..1024, 7));
    assert_eq!(in_parts, all);
    assert_eq!(look(300..300, 7), []);
    // What lies before the slots is not looked at again, and what lies behind them ends it.
    let (first, last) = (all[0], all[148]);
    assert_eq!(
        ground.store.waiting(last.slot.number()..1024, Some(first), 9).expect("waiting").last(),
        Some(&last)
    );
    assert_eq!(ground.store.waiting(0..last.slot.number(), Some(last), 9), Ok(vec![]));
}

pub(super) fn a_depth_is_counted_up_to_a_limit(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let made = ground.feed((0..10).map(|_| ground.row("a")));
    let other = ground.feed_one("b");
    for (rows_max, depth) in [(0, 0), (1, 1), (9, 9), (10, 10), (11, 10), (1_000, 10)] {
        assert_eq!(ground.store.depth(made[0].slot, made[0].instance, rows_max), Ok(depth));
    }
    assert_eq!(ground.store.depth(other.slot, other.instance, 9), Ok(1));
    assert_eq!(ground.store.depth(other.slot, InstanceId(other.instance.0 + 1_000), 9), Ok(0));
}

pub(super) fn a_purge_goes_in_bounded_steps(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(100_000);
    let rows = (0..count).map(|n| ground.ranked_row("a", Some("g"), n as i32)).collect();
    let (_, made) = ground.append_new(ground.event_to("all", rows));
    let other = ground.feed_one("b");
    let step = count / 2 - 1;
    let mut steps = Vec::new();
    loop {
        let gone = ground.store.purge(made[0].slot, made[0].instance, step as u32).expect("purged");
        assert!(gone <= step as u64);
        if gone == 0 {
            break;
        }
        steps.push(gone as usize);
    }
    assert_eq!(steps, [step, step, count - 2 * step]);
    assert_eq!(ground.places(made[0]), []);
    assert_eq!(ground.store.waiting(0..1024, None, 9).expect("waiting").len(), 1);
    assert_eq!(ground.places(other), [other.row]);
    assert_eq!(ground.store.purge(other.slot, InstanceId(other.instance.0 + 1_000), 9), Ok(0));
    assert_eq!(ground.store.dead_letters(ground.tenant, None, 0, 9), Ok(vec![]));
}
