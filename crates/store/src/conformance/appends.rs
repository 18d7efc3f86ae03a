//! Appends: order, rows, instances, and events byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use evener_actor::event::{Event, Timestamp};
use evener_actor::id::{QueueId, Seq};

use super::Harness;
use super::ground::{Ground, HOUR, done_with, group, new, part, sure, together};
use crate::batch::{Appended, FireAt, NewEvent, NewRow, QueueRow, ScheduleWrite};

pub(super) fn events_have_places_in_the_order_sent(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let events: Vec<NewEvent> = (0..200).map(|number| ground.event(&format!("e{number}"))).collect();
    let mut seqs = Vec::new();
    for half in events.chunks(100) {
        seqs.extend(ground.append(half).into_iter().map(|appended| new(appended).0));
    }
    assert!(seqs.is_sorted_by(|a, b| a < b), "places rise: {seqs:?}");
    let there = ground.stream_ids();
    let sent = seqs.iter().copied().zip(events.iter().map(|event| event.event.id.to_string()));
    assert_eq!(there, sent.collect::<Vec<_>>());
    // By place, in any order, twice, with places that are none.
    let found = ground.store.events(&[seqs[150], Seq(i64::MAX), seqs[3]]).expect("events");
    let found: BTreeMap<Seq, &Event> = found.iter().map(|stored| (stored.seq, &stored.event)).collect();
    let wanted = BTreeMap::from([(seqs[150], &events[150].event), (seqs[3], &events[3].event)]);
    assert_eq!(found, wanted);
}

pub(super) fn rows_follow_in_the_append(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let wanted = vec![
        ground.row("a"),
        ground.ranked_row("a", Some("red"), 7),
        ground.row("b"),
        NewRow { group: Some(group("blue")), ..ground.row("a") },
    ];
    let (seq, made) = ground.append_new(ground.event_to("one", wanted.clone()));
    assert_eq!(made.len(), 4);
    assert!(made.is_sorted_by(|a, b| a.row < b.row), "rows stand in the order given: {made:?}");
    assert_eq!(
        made.iter().map(|made| made.slot).collect::<Vec<_>>(),
        wanted.iter().map(|row| row.slot).collect::<Vec<_>>()
    );
    assert_eq!(made[0].instance, made[3].instance, "one instance for a key");
    assert_eq!(made.iter().map(|made| made.instance).collect::<BTreeSet<_>>().len(), 3);
    let rows = ground.rows(made[0]);
    let as_made = |place: usize| QueueRow {
        id: made[place].row,
        seq,
        stream: Some(ground.stream),
        group: wanted[place].group.clone(),
        priority: wanted[place].priority,
        delay: std::time::Duration::ZERO,
        attempts: 0,
        crashes: 0,
        origin: made[place].row,
        is_blocked: false,
        event_bytes: 12,
        event: Some(Arc::new(evener_actor::event::StoredEvent { seq, event: ground.event("one").event })),
    };
    assert_eq!(rows, [as_made(0), as_made(3)]);
    assert_eq!(ground.rows(made[1]), [as_made(1)]);
    assert_eq!(ground.rows(made[2]), [as_made(2)]);
    let view = ground.view(ground.plain, "a");
    assert_eq!((view.instance, view.slot), (made[0].instance, made[0].slot));
    assert_eq!((view.owner, view.state, view.version.0), (None, None, 0), "nobody has it yet");
}

pub(super) fn an_event_without_a_stream_goes_to_its_rows_alone(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let sent = NewEvent { stream: None, ..ground.event_to("sent", vec![ground.row("a")]) };
    let (seq, made) = ground.append_new(sent.clone());
    assert_eq!(ground.stream_ids(), []);
    let rows = ground.rows(made[0]);
    assert_eq!((rows[0].stream, rows[0].seq), (None, seq));
    assert_eq!(rows[0].event.as_ref().map(|stored| &stored.event), Some(&sent.event));
    assert_eq!(ground.store.events(&[seq]).expect("events").len(), 1);
}

pub(super) fn an_empty_batch_is_a_batch(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    assert_eq!(ground.append(&[]), []);
    assert_eq!(ground.append(&[ground.event("one")]).len(), 1);
}

pub(super) fn an_instance_is_made_once_for_a_key(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    // A prime number of keys, so that each thread meets all of them.
    let (threads, keys) = (8_usize, 41_usize);
    let batch = |thread: usize| -> Vec<NewEvent> {
        (0..keys)
            .map(|number| {
                // Each thread meets the keys in another order.
                let key = (number * (2 * thread + 1) + thread) % keys;
                ground.event_to(&format!("{thread}-{number}"), vec![ground.row(&format!("k{key}"))])
            })
            .collect()
    };
    let answers = together(threads, |thread| {
        let (ticket, events) = (ground.ticket(10 + thread as u16), batch(thread));
        (events.clone(), sure(|| ground.store.append(ticket, &events)))
    });
    let mut instances = BTreeMap::new();
    for (events, appended) in answers {
        for (event, appended) in events.into_iter().zip(appended) {
            let made = new(appended).1[0];
            let known = instances.entry(event.rows[0].key.clone()).or_insert(made.instance);
            assert_eq!(*known, made.instance, "two instances for {}", event.rows[0].key);
        }
    }
    assert_eq!(instances.len(), keys);
    let there = ground.store.instances(ground.plain, "", None, 1_000).expect("instances");
    assert_eq!(
        there.iter().map(|view| view.instance).collect::<BTreeSet<_>>(),
        instances.into_values().collect()
    );
    for view in there {
        assert_eq!(ground.store.depth(view.slot, view.instance, 1_000), Ok(threads as u32));
    }
}

pub(super) fn the_same_key_in_two_tenants_is_two_instances(harness: &dyn Harness) {
    let ours = Ground::new(harness);
    let theirs = Ground::of(harness, "other".parse().expect("a name"));
    let (first, second) = (ours.feed_one("a"), theirs.feed_one("a"));
    assert_ne!(first.instance, second.instance);
    assert_ne!((ours.stream, ours.plain), (theirs.stream, theirs.plain));
    assert_eq!(ours.view(ours.plain, "a").instance, first.instance);
    assert_eq!(theirs.view(theirs.plain, "a").instance, second.instance);
    assert_eq!(ours.stream_ids().len(), 1);
    let claimed = theirs.claim(second);
    assert_eq!((claimed.tenant, claimed.actor), (theirs.tenant, theirs.plain));
    assert_eq!(ours.view(ours.plain, "a").owner, None);
}

pub(super) fn an_append_after_an_answer_has_greater_places(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let stores = [Arc::clone(&ground.store), harness.second().unwrap_or_else(|| harness.store())];
    let (mut seq_before, mut row_before) = (Seq(0), QueueId(0));
    for round in 0..60_u16 {
        let events: Vec<NewEvent> =
            (0..3).map(|n| ground.event_to(&format!("{round}-{n}"), vec![ground.row("a")])).collect();
        let ticket = ground.ticket(round % 4);
        for appended in stores[usize::from(round) % 2].append(ticket, &events).expect("appended") {
            let (seq, made) = new(appended);
            assert!(seq > seq_before && made[0].row > row_before, "{seq} after {seq_before}");
            (seq_before, row_before) = (seq, made[0].row);
        }
    }
    assert_eq!(ground.stream_ids().len(), 180);
}

pub(super) fn a_large_batch_is_one_batch(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(20_000);
    let events: Vec<NewEvent> = (0..count)
        .map(|n| {
            let rows = if n % 50 == 0 { vec![ground.row(&format!("k{}", n % 300))] } else { vec![] };
            NewEvent { rows, ..ground.known(&format!("e{n}"), 1) }
        })
        .collect();
    let answers = ground.append(&events);
    assert_eq!(answers.len(), count);
    let seqs: Vec<Seq> = answers.into_iter().map(|appended| new(appended).0).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b));
    assert_eq!(ground.stream_ids().len(), count);
    let events_read = ground.store.events(&seqs).expect("events");
    assert_eq!(events_read.len(), count);
    let again = ground.append(&events);
    let all_known = again
        .iter()
        .zip(&seqs)
        .all(|(appended, first)| matches!(appended, Appended::Duplicate { seq, .. } if seq == first));
    assert!(all_known, "all of it is known");
    assert_eq!(ground.stream_ids().len(), count);
}

pub(super) fn one_event_reaches_very_many_instances(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(50_000);
    let rows: Vec<NewRow> = (0..count).map(|n| ground.row(&format!("k{n}"))).collect();
    let (seq, made) = ground.append_new(ground.event_to("all", rows));
    assert_eq!(made.len(), count);
    assert_eq!(made.iter().map(|made| made.instance).collect::<BTreeSet<_>>().len(), count);
    let mut found = 0;
    let mut after = None;
    loop {
        let page = ground.store.waiting(0..1024, after, 1_000).expect("waiting");
        let Some(last) = page.last() else { break };
        after = Some(*last);
        found += page.len();
    }
    assert_eq!(found, count);
    assert_eq!(ground.rows(made[count - 1])[0].seq, seq);
}

/// Events that something between here and the disk might harm.
fn fragile_events() -> Vec<Event> {
    let json = |text: &str| Event::new("t", text.to_owned());
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut large = vec![b' '; 1024 * 1024];
    large[0] = b'"';
    large[1024 * 1024 - 1] = b'"';
    let binary = |data: Vec<u8>| Event {
        content_type: Some(Arc::from("application/octet-stream")),
        ..Event::new("t", data)
    };
    let events = vec![
        json(r#"{"a":"x\u0000y","\u0000k":1}"#),
        json(r#"{"harmless":"\\u0000"}"#),
        json(r#"["ok\ud83d","\ude00",{"\ud800":1}]"#),
        json("\"😀 é \u{1f}\u{7f} \u{fffd}\""),
        json(r#"{"b":1,"a":1.0,"a":2,"n":12345678901234567890,"e":1e2,"z":1.10, "s" : "\/" }"#),
        json(""),
        json("null"),
        binary(every_byte),
        binary(vec![0]),
        binary(Vec::new()),
        Event { data: Bytes::from(large), ..json("") },
        Event { subject: Some(Arc::from("")), ..json("1") },
        Event { subject: Some(Arc::from("it's \"quoted\" \\ 🎈")), ..json("1") },
        Event { time: Timestamp(-62_135_596_800_000), ..json("1") },
        Event { time: Timestamp(253_402_300_799_999), ..json("1") },
        json("1").with_header("x-a", "1").with_header("x-a", "2").with_header("", "\u{0}\n\"'🎈"),
        Event { kind: Arc::from("ünï.'code' \"🎈\""), ..json("1") },
    ];
    let name = |(number, event): (usize, Event)| event.with_id(format!("f'{number}\"🎈")).with_source("/s ü");
    events.into_iter().enumerate().map(name).collect()
}

pub(super) fn an_event_comes_back_byte_for_byte(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    for event in fragile_events() {
        let sent = NewEvent { event, ..ground.event_to("", vec![ground.row("a")]) };
        let (seq, made) = ground.append_new(sent.clone());
        assert_eq!(ground.store.events(&[seq]).expect("events")[0].event, sent.event);
        let page = ground.store.read_stream(ground.stream, Seq(seq.0 - 1), 1, 0).expect("a page");
        assert_eq!(page[0].event, sent.event);
        let row = ground.rows(made[0]).pop().expect("the newest row");
        assert_eq!(row.event_bytes as usize, sent.event.data.len());
        assert_eq!(row.event.expect("came along").event, sent.event);
    }
}

pub(super) fn an_event_of_a_commit_comes_back_byte_for_byte(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let claimed = ground.claim(ground.feed_one("a"));
    let row = ground.places(crate::batch::RowMade {
        slot: claimed.slot,
        instance: claimed.instance,
        row: QueueId(0),
    })[0];
    let emits = fragile_events().into_iter().map(|event| NewEvent { event, ..ground.event("") }).collect();
    assert_eq!(ground.commit(&[part(&claimed, vec![done_with(row, emits, Vec::new())])]).committed, [true]);
    let page = ground.store.read_stream(ground.stream, Seq(0), 1_000, usize::MAX).expect("a page");
    let emitted: Vec<Event> = page.iter().skip(1).map(|stored| stored.event.clone()).collect();
    assert_eq!(emitted, fragile_events());
}

pub(super) fn an_event_of_a_schedule_comes_back_byte_for_byte(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    for (number, event) in fragile_events().into_iter().enumerate() {
        let id = format!("s{number:03}");
        let schedule = crate::batch::NewSchedule { event, ..ground.schedule(&id, "spec", FireAt::In(HOUR)) };
        ground.store.write_schedules(&[ScheduleWrite::Set(Box::new(schedule))]).expect("set");
    }
    let there = ground.store.schedules(ground.tenant, None, 1_000).expect("schedules");
    let events: Vec<Event> = there.into_iter().map(|schedule| schedule.event).collect();
    assert_eq!(events, fragile_events());
}

pub(super) fn a_state_comes_back_byte_for_byte(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let every_byte: Vec<u8> = (0..=255).collect();
    let states =
        [Bytes::from(every_byte), Bytes::new(), Bytes::from(vec![0; 1024 * 1024]), Bytes::from("{}")];
    for state in states {
        let row = ground.feed_one("a");
        let claimed = ground.claim(row);
        let commit = crate::batch::InstanceCommit {
            state: Some(state.clone()),
            ..part(&claimed, vec![super::ground::done(row.row)])
        };
        assert_eq!(ground.commit(&[commit]).committed, [true]);
        assert_eq!(ground.view(ground.plain, "a").state, Some(state.clone()));
        let owned = super::ground::owned(&claimed);
        ground.store.release(ground.boot, &[owned]).expect("released");
        let row = ground.feed_one("a");
        let again = ground.claim(row);
        assert_eq!(again.state, Some(state));
        let end = part(&again, vec![super::ground::done(row.row)]);
        assert_eq!(ground.commit(&[end]).committed, [true]);
        ground.store.release(ground.boot, &[super::ground::owned(&again)]).expect("released");
    }
}
