//! Names and numbers, deploys, pauses.

use std::collections::BTreeSet;

use evener_actor::definition::{ActorDefinition, Filter, From, Path, Subscription, Target, TypePattern};
use evener_actor::id::{
    KEY_BYTES_MAX, Key, NAME_BYTES_MAX, StreamName, StreamNo, SubscriptionNo, Tenant, TenantNo,
};
use evener_actor::policy::{QueueMode, QueuePolicy};

use super::Harness;
use super::ground::{Ground, HOUR, done, key, part, together};
use crate::Store;
use crate::batch::{FanOut, FireAt, NewEvent, NewRow};
use crate::tenants::{Paused, RoutedActor, Routes};

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

fn hears(stream: &str, at: &str) -> Subscription {
    Subscription::new(stream.parse().expect("a name"), path(at))
}

fn everywhere(stream: &str) -> Subscription {
    Subscription { key: Target::Broadcast, ..hears(stream, "id") }
}

fn actor(name: &str, subscribe: impl IntoIterator<Item = Subscription>) -> ActorDefinition {
    ActorDefinition {
        subscribe: subscribe.into_iter().collect(),
        ..ActorDefinition::new(name.parse().expect("a name"))
    }
}

fn fresh(harness: &dyn Harness) -> (std::sync::Arc<dyn Store>, TenantNo) {
    let store = harness.store();
    let tenant = store.tenant(&Tenant::default()).expect("a tenant");
    (store, tenant)
}

fn of<'a>(routes: &'a Routes, name: &str) -> &'a RoutedActor {
    routes.actors.iter().find(|actor| actor.name.as_str() == name).expect("an actor of that name")
}

fn numbers(actor: &RoutedActor) -> Vec<SubscriptionNo> {
    actor.subscriptions.iter().map(|(subscription, ..)| *subscription).collect()
}

pub(super) fn a_name_has_one_number(harness: &dyn Harness) {
    let (store, tenant) = fresh(harness);
    let stores = [Some(harness.store()), harness.second()];
    let numbers = together(8, |thread| {
        let store = stores[thread % 2].as_ref().unwrap_or(&store);
        let name: Tenant = "shared".parse().expect("a name");
        let shared = super::ground::sure(|| store.tenant(&name));
        let streams: Vec<StreamNo> = (0..10)
            .map(|number| {
                let name: StreamName = format!("s{number}").parse().expect("a name");
                super::ground::sure(|| store.stream(shared, &name))
            })
            .collect();
        (shared, streams)
    });
    assert!(numbers.iter().all(|one| *one == numbers[0]), "{numbers:?}");
    let (shared, streams) = &numbers[0];
    assert_ne!(*shared, tenant);
    assert_eq!(streams.iter().collect::<BTreeSet<_>>().len(), 10);
    for (number, stream) in streams.iter().enumerate() {
        let name = store.stream_name(*stream).expect("an answer").expect("a name");
        assert_eq!(name.as_str(), format!("s{number}"));
    }
    let same_name = store.stream(tenant, &"s0".parse().expect("a name")).expect("a stream");
    assert!(!streams.contains(&same_name), "of another tenant");
    assert_eq!(store.stream_name(StreamNo(i64::MAX)), Ok(None));
}

pub(super) fn the_same_deploy_changes_nothing(harness: &dyn Harness) {
    let (store, tenant) = fresh(harness);
    assert_eq!(store.routes(tenant), Ok(Routes::default()));
    let definitions = [
        actor("a", [hears("s", "subject"), everywhere("s"), hears("t", "data.id")]),
        actor("b", []),
        actor("c", [Subscription { from: From::Beginning, ..hears("s", "id") }]),
    ];
    let first = store.deploy(tenant, &definitions).expect("deployed");
    assert!(first.version > 0);
    assert_eq!(first.actors.iter().map(|actor| actor.no).collect::<BTreeSet<_>>().len(), 3);
    let stream = |name: &str| store.stream(tenant, &name.parse().expect("a name")).expect("a stream");
    let a = of(&first, "a");
    let heard: Vec<_> = a.subscriptions.iter().map(|(_, stream, heard)| (*stream, heard.clone())).collect();
    let wanted = [(stream("s"), 0), (stream("s"), 1), (stream("t"), 2)];
    assert_eq!(heard, wanted.map(|(stream, place)| (stream, definitions[0].subscribe[place].clone())));
    assert_eq!(of(&first, "b").subscriptions, []);
    for _ in 0..2 {
        assert_eq!(store.deploy(tenant, &definitions), Ok(first.clone()));
        assert_eq!(store.routes(tenant), Ok(first.clone()));
    }
    // Nor does less of the same, or nothing at all.
    assert_eq!(store.deploy(tenant, &definitions[1..2]), Ok(first.clone()));
    assert_eq!(store.deploy(tenant, &[]), Ok(first));
}

pub(super) fn a_deploy_leaves_others_alone(harness: &dyn Harness) {
    let (store, tenant) = fresh(harness);
    let other = store.tenant(&"other".parse().expect("a name")).expect("a tenant");
    let first = store.deploy(tenant, &[actor("a", [hears("s", "id")])]).expect("deployed");
    let theirs = store.deploy(other, &[actor("a", [hears("s", "id")])]).expect("deployed");
    assert_ne!(of(&first, "a").no, of(&theirs, "a").no);
    assert_ne!(numbers(of(&first, "a")), numbers(of(&theirs, "a")));
    let second = store.deploy(tenant, &[actor("b", [hears("s", "subject")])]).expect("deployed");
    assert!(second.version > first.version);
    assert_eq!(of(&second, "a"), of(&first, "a"));
    assert_eq!(store.routes(other), Ok(theirs));
}

pub(super) fn a_subscription_is_the_same_while_stream_pattern_and_kind_are(harness: &dyn Harness) {
    let (store, tenant) = fresh(harness);
    let kind = |subscription: Subscription, text: &str| Subscription {
        kind: TypePattern::new(text),
        ..subscription
    };
    let deploy =
        |subscribe: Vec<Subscription>| store.deploy(tenant, &[actor("a", subscribe)]).expect("deployed");
    let first = deploy(vec![hears("s", "subject"), kind(hears("s", "subject"), "order.*"), everywhere("s")]);
    let [all, orders, wide] = numbers(of(&first, "a"))[..] else { panic!("three subscriptions") };
    // Key, filter, group and priority may change, and the order in which they stand.
    let changed = Subscription {
        key: Target::Path(path("data.id")),
        filter: Some(Filter { path: path("data.x"), is: vec!["1".to_owned()] }),
        group: Some(path("data.g")),
        priority: Some(path("data.p")),
        ..kind(hears("s", "id"), "order.*")
    };
    let second = deploy(vec![everywhere("s"), changed.clone(), hears("s", "subject")]);
    assert!(second.version > first.version);
    assert_eq!(numbers(of(&second, "a")), [wide, orders, all]);
    assert_eq!(of(&second, "a").subscriptions[1].2, changed);
    assert_eq!(of(&second, "a").no, of(&first, "a").no);
    // Another pattern, another stream, another kind: another subscription.
    let third =
        deploy(vec![everywhere("t"), kind(hears("s", "subject"), "o*"), kind(everywhere("s"), "order.*")]);
    assert!(third.version > second.version);
    let new: BTreeSet<SubscriptionNo> = numbers(of(&third, "a")).into_iter().collect();
    assert_eq!(new.len(), 3);
    assert!([all, orders, wide].iter().all(|old| !new.contains(old)), "the old ones have ended");
    // One that comes back is a new one.
    let fourth = deploy(vec![everywhere("s")]);
    let again = numbers(of(&fourth, "a"));
    assert!(again[0] != wide && !new.contains(&again[0]));
    let fifth = deploy(vec![]);
    assert!(fifth.version > fourth.version);
    assert_eq!(of(&fifth, "a").subscriptions, []);
}

pub(super) fn rows_of_a_subscription_that_ended_stay(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let row = ground.feed_one("a");
    ground.append(&[ground.deferred("one")]);
    ground.store.deploy(ground.tenant, &[actor("wide", []), actor("plain", [])]).expect("deployed");
    assert_eq!(ground.claim(row).actor, ground.plain);
    assert_eq!(ground.places(row), [row.row]);
}

pub(super) fn an_actor_says_whether_it_is_indexed(harness: &dyn Harness) {
    let (store, tenant) = fresh(harness);
    let mode = |mode: QueueMode| QueuePolicy { mode, ..QueuePolicy::default() };
    let definitions = [
        actor("fifo", []),
        actor("grouped", [Subscription { group: Some(path("data.g")), ..hears("s", "id") }]),
        actor("priority", []).queue(mode(QueueMode::Priority)),
        actor("lifo", []).queue(mode(QueueMode::Lifo)),
        actor("latest", []).queue(mode(QueueMode::Latest)),
    ];
    let routes = store.deploy(tenant, &definitions).expect("deployed");
    for definition in &definitions {
        assert_eq!(
            of(&routes, definition.name.as_str()).is_indexed,
            definition.is_indexed(),
            "{}",
            definition.name
        );
    }
}

pub(super) fn a_subscription_from_the_beginning_has_all_before_it(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(2_500);
    let old: Vec<NewEvent> = (0..count).map(|number| ground.event(&format!("e{number}"))).collect();
    ground.append(&old);
    let elsewhere =
        ground.store.stream(ground.tenant, &"elsewhere".parse().expect("a name")).expect("a stream");
    ground.append(&[NewEvent { stream: Some(elsewhere), ..ground.event("other") }]);
    let late = actor(
        "late",
        [
            everywhere("orders"),
            Subscription {
                from: From::Beginning,
                kind: TypePattern::new("*.placed"),
                ..everywhere("orders")
            },
        ],
    );
    let routes = ground.store.deploy(ground.tenant, std::slice::from_ref(&late)).expect("deployed");
    let subscriptions = numbers(of(&routes, "late"));
    ground.append(&[NewEvent { deferred: subscriptions.clone(), ..ground.event("new") }]);
    // Now or in bounded steps, they come in order, each once, and before what is new.
    let epoch = ground.store.lease_stream(ground.stream, ground.boot).expect("an answer").expect("the lease");
    let mut seen = Vec::new();
    while seen.len() < count + 2 {
        let page = ground.store.pending(ground.stream, 1_000, usize::MAX).expect("pending");
        assert!(!page.is_empty(), "after {} of {} there are no more", seen.len(), count + 2);
        let through: Vec<FanOut> = page
            .iter()
            .map(|pending| FanOut {
                id: pending.id,
                seq: pending.event.seq,
                event_bytes: pending.event.event.data.len() as u32,
                tenant: ground.tenant,
                rows: Vec::new(),
                parked: None,
                reached: None,
            })
            .collect();
        let ticket = ground.ticket(0);
        super::ground::sure(|| ground.store.fan_out(ticket, ground.stream, epoch, &through));
        seen.extend(
            page.into_iter().map(|pending| (pending.subscription, pending.event.event.id.to_string())),
        );
    }
    let mut wanted: Vec<(SubscriptionNo, String)> =
        old.iter().map(|event| (subscriptions[1], event.event.id.to_string())).collect();
    let both: BTreeSet<SubscriptionNo> = subscriptions.into_iter().collect();
    wanted.extend(both.into_iter().map(|subscription| (subscription, "new".to_owned())));
    assert_eq!(seen, wanted);
    assert_eq!(ground.store.pending(ground.stream, 9, usize::MAX), Ok(vec![]));
    // It begins once.
    ground.store.deploy(ground.tenant, &[late]).expect("deployed");
    assert_eq!(ground.store.pending(ground.stream, 9, usize::MAX), Ok(vec![]));
}

pub(super) fn pauses_are_kept(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = Ground::of(harness, "other".parse().expect("a name"));
    let store = &ground.store;
    let a = key("a 🎈");
    assert_eq!(store.set_paused(ground.plain, None, true), Ok(true));
    assert_eq!(store.set_paused(ground.plain, None, true), Ok(false));
    assert_eq!(
        store.set_paused(ground.plain, Some(&a), true),
        Ok(true),
        "an instance by itself, though it is not there"
    );
    assert_eq!(store.set_paused(ground.ranked, Some(&a), false), Ok(false));
    assert_eq!(store.set_paused(ground.ranked, Some(&a), true), Ok(true));
    assert_eq!(store.set_paused(other.plain, None, true), Ok(true));
    let paused =
        || store.paused(ground.tenant).expect("paused").into_iter().collect::<std::collections::HashSet<_>>();
    let of = |actor, key: Option<&Key>| Paused { actor, key: key.cloned() };
    let wanted = [of(ground.plain, None), of(ground.plain, Some(&a)), of(ground.ranked, Some(&a))];
    assert_eq!(paused(), wanted.into());
    assert_eq!(store.set_paused(ground.plain, None, false), Ok(true));
    assert_eq!(store.set_paused(ground.plain, None, false), Ok(false));
    assert_eq!(paused(), [of(ground.plain, Some(&a)), of(ground.ranked, Some(&a))].into());
    assert_eq!(store.paused(other.tenant), Ok(vec![of(other.plain, None)]));
    // A deploy does not end it, and rows come in all the same.
    store.deploy(ground.tenant, &[actor("plain", [])]).expect("deployed");
    assert_eq!(paused().len(), 2);
    assert_eq!(ground.feed([ground.row("a 🎈")]).len(), 1);
}

/// Names that something between here and the disk might harm.
fn odd_names() -> Vec<String> {
    let alike = "the first seventy bytes of these two are the same, and then they part ";
    assert_eq!(alike.len(), 70);
    vec![
        format!("{alike}a"),
        format!("{alike}b"),
        "x".repeat(80),
        "🎈".repeat(20),
        "CamelCase".to_owned(),
        "camelcase".to_owned(),
        "it's \"quoted\" `so`".to_owned(),
        " ".to_owned(),
        "  two spaces at both ends  ".to_owned(),
        "a".to_owned(),
        "a ".to_owned(),
        "per%cent_line".to_owned(),
        "perxcentyline".to_owned(),
        "back\\slash".to_owned(),
        "'); DROP TABLE events; --".to_owned(),
        "$1 ?1 :name {}".to_owned(),
        "é".to_owned(),
        "e\u{301}".to_owned(),
        "line\nbreak\ttab\r".to_owned(),
        "null".to_owned(),
        "ﬀ ß İ \u{feff}\u{202e}".to_owned(),
    ]
}

pub(super) fn any_name_is_its_own(harness: &dyn Harness) {
    let (store, _) = fresh(harness);
    let names = odd_names();
    let tenants: Vec<TenantNo> =
        names.iter().map(|name| store.tenant(&name.parse().expect("a name")).expect("a tenant")).collect();
    assert_eq!(tenants.iter().collect::<BTreeSet<_>>().len(), names.len());
    let ground = Ground::new(harness);
    let definitions: Vec<ActorDefinition> = names
        .iter()
        .map(|name| actor(name, [Subscription { kind: TypePattern::new(name.as_str()), ..everywhere(name) }]))
        .collect();
    let routes = store.deploy(ground.tenant, &definitions).expect("deployed");
    assert_eq!(store.deploy(ground.tenant, &definitions), Ok(routes.clone()), "all were found again");
    let mut made = Vec::new();
    for name in &names {
        let actor = of(&routes, name);
        let (_, stream, subscription) = &actor.subscriptions[0];
        assert_eq!(
            (subscription.stream.as_str(), subscription.kind.as_str()),
            (name.as_str(), name.as_str())
        );
        let text = store.stream_name(*stream).expect("an answer").expect("a name");
        assert_eq!(text.as_str(), name);
        let row = NewRow {
            actor: actor.no,
            slot: ground.slot(name, &key(name)),
            is_indexed: true,
            ..ground.ranked_row(name, Some(name), 0)
        };
        let event = NewEvent { stream: Some(*stream), rows: vec![row], ..ground.known(name, 1) };
        made.push((actor.no, *stream, ground.append_new(event)));
        let id = ground.set(name, name, FireAt::In(HOUR));
        store.write_schedules(&[id]).expect("set");
        assert_eq!(store.set_paused(actor.no, Some(&key(name)), true), Ok(true));
    }
    for (name, (actor, stream, (seq, rows))) in names.iter().zip(&made) {
        let read = store.read_stream(*stream, evener_actor::id::Seq(0), 9, usize::MAX).expect("a page");
        assert_eq!(read.iter().map(|stored| stored.seq).collect::<Vec<_>>(), [*seq], "of {name:?}");
        assert_eq!(*read[0].event.id, **name);
        let view = store.instance(*actor, &key(name)).expect("an answer").expect("an instance");
        assert_eq!((view.instance, view.key.as_str()), (rows[0].instance, name.as_str()));
        let row = ground.rows(rows[0]).remove(0);
        assert_eq!(row.group.as_ref().map(|group| group.as_str().to_owned()), Some(name.clone()));
        let claimed = ground.claim(rows[0]);
        assert_eq!(claimed.key.as_str(), name);
        assert_eq!(ground.commit(&[part(&claimed, vec![done(row.id)])]).committed, [true]);
    }
    let schedules = store.schedules(ground.tenant, None, 1_000).expect("schedules");
    let mut sorted = names.clone();
    sorted.sort();
    let ids = |schedules: &[crate::batch::Schedule]| -> Vec<String> {
        schedules.iter().map(|schedule| schedule.id.to_string()).collect()
    };
    assert_eq!(ids(&schedules), sorted, "by name, byte by byte");
    let half = store.schedules(ground.tenant, Some(&schedules[9].id), 3).expect("schedules");
    assert_eq!(ids(&half), sorted[10..13]);
    assert_eq!(store.paused(ground.tenant).expect("paused").len(), names.len());
}

pub(super) fn the_longest_names_fit(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    // Text that does not become much shorter by compression, of four bytes a sign.
    let long = |bytes: usize, seed: u32| -> String {
        let mut state = seed;
        let mut text = String::new();
        while text.len() + 4 <= bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.push(char::from_u32(0x1_0000 + (state >> 12) % 0xf_0000).expect("above the surrogates"));
        }
        text + &"x".repeat(bytes % 4)
    };
    let name = long(NAME_BYTES_MAX, 1);
    let tenant = ground.store.tenant(&name.parse().expect("a name")).expect("a tenant");
    assert_eq!(ground.store.tenant(&name.parse().expect("a name")), Ok(tenant));
    let rows: Vec<NewRow> = (0..20)
        .map(|seed| {
            ground.ranked_row(&long(KEY_BYTES_MAX, seed), Some(&long(KEY_BYTES_MAX, seed + 100)), i32::MIN)
        })
        .collect();
    let made = ground.feed(rows.clone());
    for (row, made) in rows.iter().zip(&made) {
        let claimed = ground.claim(*made);
        assert_eq!((&claimed.key, ground.rows(*made).remove(0).group), (&row.key, row.group.clone()));
        ground.kill(&claimed, made.row);
        let set = ground.set(row.key.as_str(), "spec", FireAt::In(HOUR));
        ground.store.write_schedules(&[set]).expect("set");
        ground.store.set_paused(ground.ranked, Some(&row.key), true).expect("paused");
    }
    assert_eq!(ground.store.instances(ground.ranked, "", None, 99).expect("instances").len(), 20);
    assert_eq!(ground.store.schedules(ground.tenant, None, 99).expect("schedules").len(), 20);
    assert_eq!(ground.store.dead_letters(ground.tenant, None, 0, 99).expect("letters").len(), 20);
}

pub(super) fn instances_are_listed_by_key(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let names = odd_names();
    ground.feed(names.iter().map(|name| ground.row(name)).collect::<Vec<_>>());
    ground.feed([ground.ranked_row("of another actor", None, 0)]);
    let keys = |prefix: &str, after: Option<&str>, instances_max: u32| -> Vec<String> {
        let after = after.map(key);
        let page =
            ground.store.instances(ground.plain, prefix, after.as_ref(), instances_max).expect("instances");
        page.into_iter().map(|view| view.key.to_string()).collect()
    };
    let mut sorted = names;
    sorted.sort();
    assert_eq!(keys("", None, 1_000), sorted, "byte by byte");
    assert_eq!(keys("", Some(&sorted[4]), 5), sorted[5..10]);
    assert_eq!(
        keys("", Some("between a and b"), 1_000),
        sorted.iter().filter(|name| name.as_str() > "between a and b").cloned().collect::<Vec<_>>()
    );
    for prefix in
        ["a", "a ", "per%", "per_", "%", "_", "\\", "c", "C", "the first", "🎈", "'", "é", "e", "zz", " "]
    {
        let wanted: Vec<String> = sorted.iter().filter(|name| name.starts_with(prefix)).cloned().collect();
        assert_eq!(keys(prefix, None, 1_000), wanted, "that begin with {prefix:?}");
        if let Some(first) = wanted.first() {
            assert_eq!(keys(prefix, Some(first), 1_000), wanted[1..]);
        }
    }
    assert_eq!(ground.store.instance(ground.plain, &key("none")), Ok(None));
}

pub(super) fn deploys_that_meet_make_each_thing_once(harness: &dyn Harness) {
    let (store, tenant) = fresh(harness);
    let stores = [harness.store(), harness.second().unwrap_or_else(|| harness.store())];
    let definitions = [actor("a", [hears("s", "subject"), everywhere("t")]), actor("b", [everywhere("s")])];
    let mut answers =
        together(6, |thread| super::ground::sure(|| stores[thread % 2].deploy(tenant, &definitions)));
    answers.push(store.routes(tenant).expect("routes"));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(answers[0].actors.len(), 2);
    let all: BTreeSet<SubscriptionNo> = answers[0].actors.iter().flat_map(numbers).collect();
    assert_eq!(all.len(), 3);
}
