//! Claims, releases, commits.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use evener_actor::id::{ActorNo, Boot, Epoch, InstanceId, Key, Slot, StreamNo, TenantNo, Version};
use tokio_postgres::Row;

use super::connection::{Connection, Effect};
use super::follow::Follow;
use super::read::{get, key, only, slot};
use super::schedules::Wishes;
use super::sql::{self, Call, arg};
use super::streams::row_made;
use super::{Postgres, ticket_args};
use crate::batch::{
    Claimed, CommitReport, End, InstanceCommit, InstanceView, NewEvent, RowMade, ScheduleWrite, Ticket,
    Waiting,
};
use crate::{Instances, Result};

/// A batch of commits as arrays.
#[derive(Default)]
struct Batch<'a> {
    /// For each instance, in the order of ids: its first and its last version.
    ids: Vec<i64>,
    epochs: Vec<i64>,
    versions: Vec<i64>,
    versions_after: Vec<i64>,
    /// Where its state begins in `states`, from 1; 0: it has not changed.
    state_at: Vec<i32>,
    state_bytes: Vec<i32>,
    states: Vec<u8>,
    /// Its rows in `gone`, from 1, both inclusive.
    firsts: Vec<i32>,
    lasts: Vec<i32>,
    gone: Vec<i64>,
    wait_firsts: Vec<i32>,
    wait_lasts: Vec<i32>,
    waits: Vec<i64>,
    /// Sorted by id, as the arrays below.
    wait_ids: Vec<i64>,
    wait_attempts: Vec<i32>,
    wait_delays: Vec<Option<i64>>,
    wait_blocked: Vec<bool>,
    wait_errors: Vec<&'a str>,
    dead_ids: Vec<i64>,
    dead_attempts: Vec<i32>,
    dead_causes: Vec<&'a str>,
    dead_errors: Vec<&'a str>,
    follow: Follow<'a>,
    wishes: Wishes<'a>,
    /// For each commit of the caller's: its place in `ids`, or that it cannot be right.
    places: Vec<Option<usize>>,
}

impl<'a> Batch<'a> {
    fn of(commits: &'a [InstanceCommit]) -> Self {
        let mut batch = Self { places: vec![None; commits.len()], ..Self::default() };
        let mut order: Vec<usize> = (0..commits.len()).collect();
        // Stable: several commits of one instance stay in their order.
        order.sort_by_key(|at| commits[*at].instance);
        let mut waits: Vec<(i64, i32, Option<i64>, bool, &str)> = Vec::new();
        let mut dead: Vec<(i64, i32, &str, &str)> = Vec::new();
        for at in order {
            let commit = &commits[at];
            if batch.ids.last() == Some(&commit.instance.0) {
                // One row is updated once: what belongs together becomes one.
                let place = batch.ids.len() - 1;
                if batch.epochs[place] != commit.epoch.0 || batch.versions_after[place] != commit.version.0 {
                    continue;
                }
                batch.versions_after[place] = commit.version_after.0;
            } else {
                batch.ids.push(commit.instance.0);
                batch.epochs.push(commit.epoch.0);
                batch.versions.push(commit.version.0);
                batch.versions_after.push(commit.version_after.0);
                batch.state_at.push(0);
                batch.state_bytes.push(0);
                batch.firsts.push(batch.gone.len() as i32 + 1);
                batch.lasts.push(0);
                batch.wait_firsts.push(batch.waits.len() as i32 + 1);
                batch.wait_lasts.push(0);
            }
            let place = batch.ids.len() - 1;
            batch.places[at] = Some(place);
            if let Some(state) = &commit.state {
                batch.state_at[place] = batch.states.len() as i32 + 1;
                batch.state_bytes[place] = state.len() as i32;
                batch.states.extend_from_slice(state);
            }
            for end in &commit.ends {
                let row = end.row.0;
                match &end.end {
                    End::Done { events, schedules } => {
                        batch.gone.push(row);
                        for event in events {
                            batch.follow.event(row, event);
                        }
                        for write in schedules {
                            batch.wishes.add(row, write);
                        }
                    }
                    End::Superseded => batch.gone.push(row),
                    End::Dead { attempts, cause, error } => {
                        batch.gone.push(row);
                        dead.push((row, number(*attempts), cause.as_str(), error));
                    }
                    End::Retry { attempts, delay, error } => {
                        batch.waits.push(row);
                        let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX >> 1);
                        waits.push((row, number(*attempts), (delay > 0).then_some(delay), false, error));
                    }
                    End::Blocked { attempts, error } => {
                        batch.waits.push(row);
                        waits.push((row, number(*attempts), None, true, error));
                    }
                }
            }
            batch.lasts[place] = batch.gone.len() as i32;
            batch.wait_lasts[place] = batch.waits.len() as i32;
        }
        waits.sort_unstable_by_key(|wait| wait.0);
        for (id, attempts, delay, is_blocked, error) in waits {
            batch.wait_ids.push(id);
            batch.wait_attempts.push(attempts);
            batch.wait_delays.push(delay);
            batch.wait_blocked.push(is_blocked);
            batch.wait_errors.push(error);
        }
        dead.sort_unstable_by_key(|dead| dead.0);
        for (id, attempts, cause, error) in dead {
            batch.dead_ids.push(id);
            batch.dead_attempts.push(attempts);
            batch.dead_causes.push(cause);
            batch.dead_errors.push(error);
        }
        batch
    }

    fn parts(&self) -> Vec<&'static str> {
        let mut parts = Vec::new();
        let has_events = *self.follow.events() > 0;
        parts.push(if has_events { "drawn" } else { "undrawn" });
        if !self.states.is_empty() || self.state_at.iter().any(|at| *at > 0) {
            parts.push("states");
        }
        if !self.gone.is_empty() {
            parts.push("gone");
        }
        if !self.waits.is_empty() {
            parts.push("waits");
        }
        if !self.dead_ids.is_empty() {
            parts.push("dead");
        }
        if has_events || !self.wishes.is_empty() {
            parts.extend(["leave", "some"]);
        }
        self.follow.parts(&mut parts);
        if !self.wishes.is_empty() {
            parts.push("schedules");
        }
        parts
    }

    fn committed(&self, moved: &HashSet<i32>) -> Vec<bool> {
        let is_moved = |place: &Option<usize>| place.is_some_and(|place| moved.contains(&(place as i32 + 1)));
        self.places.iter().map(is_moved).collect()
    }
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn report(commits: &[InstanceCommit], committed: Vec<bool>, rows: Vec<RowMade>) -> CommitReport {
    let mut pending: Vec<StreamNo> = Vec::new();
    let mut is_sooner = false;
    for (commit, _) in commits.iter().zip(&committed).filter(|(_, is_committed)| **is_committed) {
        for end in &commit.ends {
            if let End::Done { events, schedules } = &end.end {
                pending.extend(pending_of(events));
                is_sooner |= schedules.iter().any(|write| matches!(write, ScheduleWrite::Set(_)));
            }
        }
    }
    pending.sort_unstable();
    pending.dedup();
    CommitReport { committed, rows, pending, is_sooner }
}

/// Streams that have something for deferred subscriptions.
pub(super) fn pending_of(events: &[NewEvent]) -> impl Iterator<Item = StreamNo> {
    events.iter().filter(|event| !event.deferred.is_empty()).filter_map(|event| event.stream)
}

impl Postgres {
    /// Sends a statement, with the instances that it needs made first, in one transaction.
    pub(super) fn follow_up(
        &self,
        connection: &Connection,
        follow: &Follow<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Row>> {
        if !follow.is_cold() {
            return connection.ask(Effect::Writes, &call);
        }
        let mut answers = connection.ask_all(Effect::Writes, &[follow.make(), call])?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// The rows that an answer with `made`, `instances` and `ids` says were made.
    pub(super) fn rows_of_answer(&self, answer: &Row, follow: &mut Follow<'_>) -> Result<Vec<RowMade>> {
        if *follow.rows() == 0 {
            return Ok(Vec::new());
        }
        let made: Vec<i64> = get::<Option<_>>(answer, "made")?.unwrap_or_default();
        let instances: Vec<i64> = get::<Option<_>>(answer, "instances")?.unwrap_or_default();
        let ids: Vec<i64> = get::<Option<_>>(answer, "ids")?.unwrap_or_default();
        Ok(follow.learn(&self.keys, &ids, &made, &instances))
    }

    /// The rows that the last batch of a lane made, as far as they are still there.
    pub(super) fn rows_again(
        &self,
        connection: &Connection,
        ticket: &Ticket,
        follow: &Follow<'_>,
    ) -> Result<Vec<RowMade>> {
        if *follow.rows() == 0 {
            return Ok(Vec::new());
        }
        let lane = ticket_args(ticket);
        let mut args = lane.args();
        args.extend(follow.places());
        let rows = connection.ask(Effect::Reads, &Call::new(sql::ROW_PLACES, args))?;
        rows.iter().map(row_made).collect()
    }
}

impl Instances for Postgres {
    fn claim(&self, boot: Boot, wanted: &[Waiting]) -> Result<Vec<Claimed>> {
        let mut ids: Vec<i64> = wanted.iter().map(|waiting| waiting.instance.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let call = Call::new(sql::CLAIM, vec![arg("boot", &boot.0), arg("ids", &ids)]);
        let rows = self.other.ask(Effect::Writes, &call)?;
        if rows.is_empty() {
            self.check_live(boot)?;
        }
        let mut claimed = HashMap::new();
        for row in &rows {
            let instance = InstanceId(get(row, "id")?);
            claimed.insert(
                instance,
                Claimed {
                    slot: slot(get(row, "slot")?)?,
                    instance,
                    tenant: TenantNo(get(row, "tenant")?),
                    actor: ActorNo(get(row, "actor")?),
                    key: key(get(row, "key")?)?,
                    epoch: Epoch(get(row, "epoch")?),
                    version: Version(get(row, "version")?),
                    state: get::<Option<&[u8]>>(row, "state")?.map(Bytes::copy_from_slice),
                    was_orphan: get(row, "was_orphan")?,
                },
            );
        }
        Ok(wanted.iter().filter_map(|waiting| claimed.remove(&waiting.instance)).collect())
    }

    fn release(&self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) -> Result<()> {
        let mut sorted: Vec<(i64, i64)> = owned.iter().map(|(_, id, epoch)| (id.0, epoch.0)).collect();
        sorted.sort_unstable();
        sorted.dedup_by_key(|owned| owned.0);
        let ids: Vec<i64> = sorted.iter().map(|owned| owned.0).collect();
        let epochs: Vec<i64> = sorted.iter().map(|owned| owned.1).collect();
        let args = vec![arg("boot", &boot.0), arg("ids", &ids), arg("epochs", &epochs)];
        self.other.ask(Effect::Writes, &Call::new(sql::RELEASE, args)).map(drop)
    }

    fn commit(&self, ticket: Ticket, commits: &[InstanceCommit]) -> Result<CommitReport> {
        let connection = self.commit_lane(ticket.lane);
        let lane = self.lane(connection, &ticket)?;
        let mut batch = Batch::of(commits);
        batch.follow.resolve(&self.keys);
        let mut args = lane.args();
        args.extend([
            arg("ids", &batch.ids),
            arg("epochs", &batch.epochs),
            arg("versions", &batch.versions),
            arg("versions_after", &batch.versions_after),
            arg("state_at", &batch.state_at),
            arg("state_bytes", &batch.state_bytes),
            arg("states", &batch.states),
            arg("firsts", &batch.firsts),
            arg("lasts", &batch.lasts),
            arg("gone", &batch.gone),
            arg("wait_firsts", &batch.wait_firsts),
            arg("wait_lasts", &batch.wait_lasts),
            arg("waits", &batch.waits),
            arg("wait_ids", &batch.wait_ids),
            arg("wait_attempts", &batch.wait_attempts),
            arg("wait_delays", &batch.wait_delays),
            arg("wait_blocked", &batch.wait_blocked),
            arg("wait_errors", &batch.wait_errors),
            arg("dead_ids", &batch.dead_ids),
            arg("dead_attempts", &batch.dead_attempts),
            arg("dead_causes", &batch.dead_causes),
            arg("dead_errors", &batch.dead_errors),
        ]);
        batch.follow.args(&mut args);
        batch.wishes.args(&mut args);
        let answer =
            self.follow_up(connection, &batch.follow, Call::with(sql::COMMIT, batch.parts(), args))?;
        let answer = only(&answer)?;
        if get::<bool>(answer, "is_done")? {
            let moved: HashSet<i32> = get::<Vec<i32>>(answer, "moved")?.into_iter().collect();
            let committed = batch.committed(&moved);
            let rows = self.rows_of_answer(answer, &mut batch.follow)?;
            return Ok(report(commits, committed, rows));
        }
        // A first copy did it. An instance of this epoch at the version after it is committed: the lane's next
        // batch has not been sent, and nobody else writes under this epoch.
        self.was_done(connection, &ticket)?;
        let args = vec![
            arg("boot", &ticket.boot.0),
            arg("ids", &batch.ids),
            arg("epochs", &batch.epochs),
            arg("versions_after", &batch.versions_after),
        ];
        let states = connection.ask(Effect::Reads, &Call::new(sql::INSTANCE_STATES, args))?;
        let moved: HashSet<i32> = states.iter().map(|row| get(row, "n")).collect::<Result<_>>()?;
        let rows = self.rows_again(connection, &ticket, &batch.follow)?;
        Ok(report(commits, batch.committed(&moved), rows))
    }

    fn instance(&self, actor: ActorNo, key: &Key) -> Result<Option<InstanceView>> {
        let text = key.as_str();
        let rows = self.read(&Call::new(sql::INSTANCE, vec![arg("actor", &actor.0), arg("key", &text)]))?;
        rows.first().map(view).transpose()
    }

    fn instances(
        &self,
        actor: ActorNo,
        prefix: &str,
        after: Option<&Key>,
        instances_max: u32,
    ) -> Result<Vec<InstanceView>> {
        let after = after.map_or("", Key::as_str);
        let end = end_of(prefix);
        let instances_max = i64::from(instances_max);
        let mut parts = Vec::new();
        if !prefix.is_empty() {
            parts.push("prefix");
        }
        if end.is_some() {
            parts.push("end");
        }
        let end = end.unwrap_or_default();
        let args = vec![
            arg("actor", &actor.0),
            arg("after", &after),
            arg("prefix", &prefix),
            arg("end", &end),
            arg("instances_max", &instances_max),
        ];
        self.read(&Call::with(sql::INSTANCES, parts, args))?.iter().map(view).collect()
    }
}

fn view(row: &Row) -> Result<InstanceView> {
    Ok(InstanceView {
        slot: slot(get(row, "slot")?)?,
        instance: InstanceId(get(row, "id")?),
        actor: ActorNo(get(row, "actor")?),
        key: key(get(row, "key")?)?,
        owner: get::<Option<i64>>(row, "owner")?.map(Boot),
        epoch: Epoch(get(row, "epoch")?),
        version: Version(get(row, "version")?),
        state: get::<Option<&[u8]>>(row, "state")?.map(Bytes::copy_from_slice),
    })
}

/// The first text, by bytes, that is greater than all that begin so. `None`: there is none.
fn end_of(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The next character: UTF-8 sorts as its characters do; the gap of the surrogates is jumped.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_behind_all_that_begin_so() {
        for (prefix, end) in
            [("a", Some("b")), ("az", Some("a{")), ("\u{d7ff}", Some("\u{e000}")), ("a\u{10ffff}", Some("b"))]
        {
            assert_eq!(end_of(prefix).as_deref(), end);
            assert!(end.is_some_and(|end| *end.as_bytes() > *format!("{prefix}\u{10ffff}").as_bytes()));
        }
        assert_eq!(end_of(""), None);
        assert_eq!(end_of("\u{10ffff}"), None);
    }
}
