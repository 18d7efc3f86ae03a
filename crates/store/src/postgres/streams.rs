//! Appends, streams, fan-out.

use std::collections::HashMap;
use std::sync::Arc;

use evener_actor::event::{StoredEvent, Timestamp};
use evener_actor::id::{
    ActorNo, Boot, Epoch, InstanceId, Key, QueueId, Seq, StreamNo, SubscriptionNo, TenantNo,
};
use tokio_postgres::Row;

use super::connection::{Connection, Effect};
use super::follow::Follow;
use super::read::{at, event, get, key, only, slot};
use super::sql::{self, Arg, Call, arg};
use super::{Postgres, ticket_args};
use crate::batch::{Appended, FanOut, Fate, NewEvent, Pending, RowMade, Ticket};
use crate::{Result, StoreError, Streams};

/// What is known under an id.
struct Known {
    seq: Seq,
    body_hash: u64,
    fate: Fate,
}

/// The events of a batch that may be doubled, as arrays; and those that are doubled within the batch.
#[derive(Default)]
struct Doubles<'a> {
    /// For each event of the batch: its number among those that are appended, from 0; or the event of the batch
    /// that it repeats.
    of: Vec<Place>,
    event: Vec<i32>,
    tenant: Vec<i64>,
    stream: Vec<i64>,
    source: Vec<&'a str>,
    id: Vec<&'a str>,
    hash: Vec<i64>,
    window: Vec<i64>,
    is_deduped: Vec<bool>,
}

#[derive(Clone, Copy)]
enum Place {
    Sent(usize),
    Repeats(usize),
}

impl<'a> Doubles<'a> {
    fn of(events: &'a [NewEvent]) -> Self {
        let mut doubles = Self::default();
        let mut first: HashMap<(TenantNo, Option<StreamNo>, &str, &str), usize> = HashMap::new();
        let mut sent = 0;
        for (number, new) in events.iter().enumerate() {
            if let Some(dedupe) = &new.dedupe {
                let (source, id): (&str, &str) = (&new.event.source, &new.event.id);
                let of = *first.entry((new.tenant, new.stream, source, id)).or_insert(number);
                if of != number {
                    doubles.of.push(Place::Repeats(of));
                    continue;
                }
                doubles.event.push(sent as i32 + 1);
                doubles.tenant.push(new.tenant.0);
                doubles.stream.push(new.stream.map_or(0, |stream| stream.0));
                doubles.source.push(source);
                doubles.id.push(id);
                doubles.hash.push(dedupe.body_hash as i64);
                doubles.window.push(i64::try_from(dedupe.window.as_millis()).unwrap_or(i64::MAX >> 1));
            }
            doubles.of.push(Place::Sent(sent));
            doubles.is_deduped.push(new.dedupe.is_some());
            sent += 1;
        }
        doubles
    }

    fn args<'b>(&'b self, args: &mut Vec<Arg<'b>>) {
        args.extend([
            arg("dedupe_event", &self.event),
            arg("dedupe_tenant", &self.tenant),
            arg("dedupe_stream", &self.stream),
            arg("dedupe_source", &self.source),
            arg("dedupe_id", &self.id),
            arg("dedupe_hash", &self.hash),
            arg("dedupe_window", &self.window),
            arg("event_deduped", &self.is_deduped),
        ]);
    }

    fn look(&self) -> Call<'_> {
        let mut args = Vec::new();
        self.args(&mut args);
        Call::new(sql::DEDUPE, args)
    }

    /// What is known, by number of the appended event, from 0.
    fn known(&self, rows: &[Row]) -> Result<HashMap<usize, Known>> {
        let mut known = HashMap::new();
        for row in rows {
            let number = get::<i64>(row, "n")? as usize - 1;
            let fate = if get(row, "is_waiting")? {
                Fate::Waiting
            } else if get(row, "is_dead")? {
                Fate::DeadLetter
            } else if get(row, "is_parked")? {
                Fate::Parked
            } else {
                Fate::Done
            };
            let body_hash = get::<i64>(row, "body_hash")? as u64;
            known.insert(
                self.event[number] as usize - 1,
                Known { seq: Seq(get(row, "seq")?), body_hash, fate },
            );
        }
        Ok(known)
    }

    /// One answer for each event of the batch, from `new`: those that were appended, by number.
    fn answers(
        &self,
        events: &[NewEvent],
        known: &HashMap<usize, Known>,
        mut new: impl FnMut(usize) -> Option<Appended>,
    ) -> Result<Vec<Appended>> {
        let mut answers: Vec<Appended> = Vec::with_capacity(events.len());
        for (number, place) in self.of.iter().enumerate() {
            let body_hash = |number: usize| events[number].dedupe.map(|dedupe| dedupe.body_hash);
            let answer = match place {
                Place::Sent(sent) => match new(*sent) {
                    Some(answer) => answer,
                    None => {
                        let known = known.get(sent).ok_or_else(|| {
                            StoreError::Internal("an event is neither new nor known".to_owned())
                        })?;
                        doubled(known.seq, known.fate, Some(known.body_hash) == body_hash(number))
                    }
                },
                Place::Repeats(first) => {
                    let Place::Sent(sent) = self.of[*first] else {
                        return Err(StoreError::Internal("a double of a double".to_owned()));
                    };
                    match &answers[*first] {
                        Appended::New { seq, .. } => {
                            doubled(*seq, fate_of(&events[*first]), body_hash(*first) == body_hash(number))
                        }
                        Appended::Duplicate { seq, fate } => {
                            doubled(*seq, *fate, body_hash(*first) == body_hash(number))
                        }
                        Appended::Conflict { seq } => {
                            let known = known.get(&sent);
                            let is_same = known.map(|known| known.body_hash) == body_hash(number);
                            doubled(*seq, known.map_or(Fate::Done, |known| known.fate), is_same)
                        }
                    }
                }
            };
            answers.push(answer);
        }
        Ok(answers)
    }
}

fn doubled(seq: Seq, fate: Fate, is_same: bool) -> Appended {
    if is_same { Appended::Duplicate { seq, fate } } else { Appended::Conflict { seq } }
}

/// What has become of an event that was appended just now.
fn fate_of(new: &NewEvent) -> Fate {
    if !new.rows.is_empty() || !new.deferred.is_empty() {
        Fate::Waiting
    } else if !new.parked.is_empty() {
        Fate::Parked
    } else {
        Fate::Done
    }
}

impl Postgres {
    /// The answer to an append that a first copy of it did.
    fn append_again(
        &self,
        connection: &Connection,
        ticket: Ticket,
        events: &[NewEvent],
        doubles: &Doubles<'_>,
        follow: &Follow<'_>,
    ) -> Result<Vec<Appended>> {
        let lane = ticket_args(&ticket);
        let mut args: Vec<Arg<'_>> = lane.args();
        args.extend(follow.places());
        let calls =
            [Call::new(sql::EVENT_PLACES, lane.args()), Call::new(sql::ROW_PLACES, args), doubles.look()];
        let answers = connection.ask_all(Effect::Reads, &calls)?;
        let seqs: Vec<i64> = answers[0].iter().map(|row| get(row, "seq")).collect::<Result<_>>()?;
        let mut rows: HashMap<i64, Vec<RowMade>> = HashMap::new();
        for row in &answers[1] {
            rows.entry(get(row, "seq")?).or_default().push(row_made(row)?);
        }
        let known = doubles.known(&answers[2])?;
        let mut seqs = seqs.into_iter().peekable();
        doubles.answers(events, &known, |sent| {
            // What was appended has places in the order in which it was sent.
            let seq = match known.get(&sent) {
                Some(known) => seqs.next_if_eq(&known.seq.0)?,
                None => seqs.next()?,
            };
            Some(Appended::New { seq: Seq(seq), rows: rows.remove(&seq).unwrap_or_default() })
        })
    }
}

pub(super) fn row_made(row: &Row) -> Result<RowMade> {
    Ok(RowMade {
        slot: slot(get(row, "slot")?)?,
        instance: InstanceId(get(row, "instance")?),
        row: QueueId(get(row, "id")?),
    })
}

impl Streams for Postgres {
    fn append(&self, ticket: Ticket, events: &[NewEvent]) -> Result<Vec<Appended>> {
        let connection = self.append_lane(ticket.lane);
        let lane = self.lane(connection, &ticket)?;
        let doubles = Doubles::of(events);
        let mut follow = Follow::default();
        for (new, place) in events.iter().zip(&doubles.of) {
            if let Place::Sent(sent) = place {
                follow.event(*sent as i64 + 1, new);
            }
        }
        follow.resolve(&self.keys);
        let has_dedupe = !doubles.event.is_empty();
        let mut parts = vec![];
        follow.parts(&mut parts);
        parts.extend(if has_dedupe { ["dedupe", "some"].as_slice() } else { &["all"] });
        let mut args = lane.args();
        follow.args(&mut args);
        doubles.args(&mut args);
        let append = Call::with(sql::APPEND, parts, args);
        let mut looked = Vec::new();
        let done = if follow.is_cold() || has_dedupe {
            let mut calls = Vec::new();
            if follow.is_cold() {
                calls.push(follow.make());
            }
            calls.push(append);
            if has_dedupe {
                calls.push(doubles.look());
            }
            let mut answers = connection.ask_all(Effect::Writes, &calls)?;
            if has_dedupe {
                looked = answers.pop().unwrap_or_default();
            }
            answers.pop().unwrap_or_default()
        } else {
            connection.ask(Effect::Writes, &append)?
        };
        let done = only(&done)?;
        if !get::<bool>(done, "is_done")? {
            self.was_done(connection, &ticket)?;
            return self.append_again(connection, ticket, events, &doubles, &follow);
        }
        let seqs: Vec<i64> = get::<Option<Vec<i64>>>(done, "seqs")?.unwrap_or_default();
        let ids: Vec<i64> = get::<Option<Vec<i64>>>(done, "ids")?.unwrap_or_default();
        if follow.is_cold() {
            let made: Vec<i64> = get::<Option<_>>(done, "made")?.unwrap_or_default();
            let instances: Vec<i64> = get::<Option<_>>(done, "instances")?.unwrap_or_default();
            follow.learn(&self.keys, &ids, &made, &instances);
        }
        let known = doubles.known(&looked)?;
        doubles.answers(events, &known, |sent| {
            let seq = Seq(seqs[sent]);
            if known.get(&sent).is_some_and(|known| known.seq != seq) {
                return None;
            }
            let rows = follow.rows_of(sent as i32 + 1).map(|at| follow.made(at, ids[at])).collect();
            Some(Appended::New { seq, rows })
        })
    }

    fn events(&self, seqs: &[Seq]) -> Result<Vec<Arc<StoredEvent>>> {
        let wanted: Vec<i64> = seqs.iter().map(|seq| seq.0).collect();
        let rows = self.read(&Call::new(sql::EVENTS, vec![arg("seqs", &wanted)]))?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let event = Arc::new(event(row, 0)?);
            found.insert(event.seq, event);
        }
        Ok(seqs.iter().filter_map(|seq| found.get(seq).cloned()).collect())
    }

    fn read_stream(
        &self,
        stream: StreamNo,
        after: Seq,
        events_max: u32,
        bytes_max: usize,
    ) -> Result<Vec<Arc<StoredEvent>>> {
        let up_to = self.settled_seq()?;
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let events_max = i64::from(events_max);
        let rows = self.read(&Call::new(
            sql::READ_STREAM,
            vec![
                arg("stream", &stream.0),
                arg("after", &after.0),
                arg("up_to", &up_to),
                arg("events_max", &events_max),
                arg("bytes_max", &bytes_max),
            ],
        ))?;
        rows.iter().map(|row| event(row, 0).map(Arc::new)).collect()
    }

    fn streams_pending(&self, after: Option<StreamNo>, streams_max: u32) -> Result<Vec<StreamNo>> {
        let after = after.map_or(i64::MIN, |stream| stream.0);
        let streams_max = i32::try_from(streams_max).unwrap_or(i32::MAX);
        let rows = self.read(&Call::new(
            sql::STREAMS_PENDING,
            vec![arg("after", &after), arg("streams_max", &streams_max)],
        ))?;
        rows.iter().map(|row| get(row, "stream").map(StreamNo)).collect()
    }

    fn lease_stream(&self, stream: StreamNo, boot: Boot) -> Result<Option<Epoch>> {
        let call = Call::new(sql::LEASE_STREAM, vec![arg("stream", &stream.0), arg("boot", &boot.0)]);
        let rows = self.other.ask(Effect::Writes, &call)?;
        if rows.is_empty() {
            self.check_live(boot)?;
        }
        rows.first().map(|row| get(row, "lease_epoch").map(Epoch)).transpose()
    }

    fn release_stream(&self, stream: StreamNo, boot: Boot, epoch: Epoch) -> Result<()> {
        let args = vec![arg("stream", &stream.0), arg("boot", &boot.0), arg("epoch", &epoch.0)];
        self.other.ask(Effect::Writes, &Call::new(sql::RELEASE_STREAM, args)).map(drop)
    }

    fn pending(&self, stream: StreamNo, events_max: u32, bytes_max: usize) -> Result<Vec<Pending>> {
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let events_max = i64::from(events_max);
        let rows = self.read(&Call::new(
            sql::PENDING,
            vec![arg("stream", &stream.0), arg("events_max", &events_max), arg("bytes_max", &bytes_max)],
        ))?;
        let mut events: HashMap<i64, Arc<StoredEvent>> = HashMap::new();
        let mut pending = Vec::with_capacity(rows.len());
        for row in &rows {
            let seq: i64 = at(row, 3)?;
            let stored = match events.get(&seq) {
                Some(stored) => Arc::clone(stored),
                None => {
                    let stored = Arc::new(event(row, 3)?);
                    events.insert(seq, Arc::clone(&stored));
                    stored
                }
            };
            pending.push(Pending {
                id: at(row, 0)?,
                subscription: SubscriptionNo(at(row, 1)?),
                reached: at::<Option<i64>>(row, 2)?.map(InstanceId),
                event: stored,
            });
        }
        Ok(pending)
    }

    fn instances_of(
        &self,
        actor: ActorNo,
        after: InstanceId,
        instances_max: u32,
    ) -> Result<Vec<(InstanceId, Key)>> {
        let instances_max = i64::from(instances_max);
        let rows = self.read(&Call::new(
            sql::INSTANCES_OF,
            vec![arg("actor", &actor.0), arg("after", &after.0), arg("instances_max", &instances_max)],
        ))?;
        rows.iter().map(|row| Ok((InstanceId(get(row, "id")?), key(get(row, "key")?)?))).collect()
    }

    fn fan_out(
        &self,
        ticket: Ticket,
        stream: StreamNo,
        epoch: Epoch,
        done: &[FanOut],
    ) -> Result<Vec<RowMade>> {
        let connection = self.append_lane(ticket.lane);
        let lane = self.lane(connection, &ticket)?;
        let mut follow = Follow::default();
        let mut seqs = Vec::with_capacity(done.len());
        let (mut done_seqs, mut done_ids) = (Vec::new(), Vec::new());
        let mut on: Vec<(i64, i64, i64)> = Vec::new();
        for (number, fan_out) in done.iter().enumerate() {
            let event = number as i32 + 1;
            seqs.push(fan_out.seq.0);
            let bytes = i32::try_from(fan_out.event_bytes).unwrap_or(i32::MAX);
            for row in &fan_out.rows {
                follow.row(fan_out.id, event, fan_out.tenant.0, Some(stream.0), bytes, row);
            }
            if let Some(parked) = &fan_out.parked {
                follow.parked(fan_out.id, event, fan_out.tenant.0, Some(stream.0), bytes, parked);
            }
            match fan_out.reached {
                None => {
                    done_seqs.push(fan_out.seq.0);
                    done_ids.push(fan_out.id);
                }
                Some(reached) => on.push((fan_out.id, fan_out.seq.0, reached.0)),
            }
        }
        on.sort_unstable();
        let on_ids: Vec<i64> = on.iter().map(|on| on.0).collect();
        let on_seqs: Vec<i64> = on.iter().map(|on| on.1).collect();
        let on_reached: Vec<i64> = on.iter().map(|on| on.2).collect();
        follow.resolve(&self.keys);
        let mut parts = vec!["some"];
        follow.parts(&mut parts);
        let mut args = lane.args();
        follow.args(&mut args);
        args.extend([
            arg("stream", &stream.0),
            arg("epoch", &epoch.0),
            arg("seqs", &seqs),
            arg("done_seqs", &done_seqs),
            arg("done_ids", &done_ids),
            arg("on_ids", &on_ids),
            arg("on_seqs", &on_seqs),
            arg("on_reached", &on_reached),
        ]);
        let answer = self.follow_up(connection, &follow, Call::with(sql::FAN_OUT, parts, args))?;
        let answer = only(&answer)?;
        if !get::<bool>(answer, "is_done")? {
            self.was_done(connection, &ticket)?;
            return self.rows_again(connection, &ticket, &follow);
        }
        self.rows_of_answer(answer, &mut follow)
    }

    fn prune(&self, events_before: Timestamp, rows_max: u32) -> Result<u64> {
        self.prune_tables(events_before, rows_max)
    }
}
