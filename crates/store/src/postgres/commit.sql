-- Commits the outcomes of many instances. Arrays that belong to instances are in the order of :ids, which is
-- sorted, so that width_bucket(id, :ids) is an id's place in it, found by halves; rows of instance n are
-- numbers firsts[n] to lasts[n] of :gone (:waits). Every part starts from what `moved` returns.
WITH
--[ drawn
drawn AS MATERIALIZED (
    SELECT d.seqs, d.ids, d.at_ms FROM draw(:events::integer, :rows::integer) d
),
--]
lane AS (
    UPDATE lanes l
    SET batch_no = :number::bigint
--[ drawn
        , seq_first = d.seqs[1], seq_last = d.seqs[:events::integer]
        , row_first = d.ids[1], row_last = d.ids[:rows::integer]
    FROM drawn d
--]
--[ undrawn
        , seq_first = NULL, seq_last = NULL, row_first = NULL, row_last = NULL
--]
    WHERE l.boot = :boot::bigint AND l.lane = :lane::integer AND l.batch_no = :number::bigint - 1
      AND EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live)
    RETURNING l.batch_no
), moved AS (
    UPDATE instances i
    SET version = (:versions_after::bigint[])[width_bucket(i.id, :ids::bigint[])]
--[ states
        , state = CASE WHEN (:state_at::integer[])[width_bucket(i.id, :ids::bigint[])] > 0
            THEN substr(:states::bytea, (:state_at::integer[])[width_bucket(i.id, :ids::bigint[])],
                                        (:state_bytes::integer[])[width_bucket(i.id, :ids::bigint[])])
            ELSE i.state END
--]
    WHERE i.id = ANY (:ids::bigint[])
      AND EXISTS (SELECT 1 FROM lane)
      AND i.owner = :boot::bigint
      AND i.epoch = (:epochs::bigint[])[width_bucket(i.id, :ids::bigint[])]
      AND i.version = (:versions::bigint[])[width_bucket(i.id, :ids::bigint[])]
    RETURNING i.id, i.tenant, i.actor, i.slot, width_bucket(i.id, :ids::bigint[]) AS n
)
--[ gone
, gone AS (
    DELETE FROM queue q
    WHERE q.ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM moved m
        CROSS JOIN generate_series((:firsts::integer[])[m.n], (:lasts::integer[])[m.n]) AS g(n)
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM queue r
            WHERE r.slot = m.slot AND r.instance = m.id AND r.id = (:gone::bigint[])[g.n]
            OFFSET 0
        ) found
    ))
    RETURNING q.id, q.slot, q.instance, q.seq, q.stream, q.group_hash, q.group_name, q.priority, q.event_bytes,
              q.is_indexed, q.crashes, q.origin
)
--]
--[ waits
, put_off AS (
    UPDATE queue q
    SET attempts = (:wait_attempts::integer[])[width_bucket(q.id, :wait_ids::bigint[])],
        not_before_ms = now_ms() + (:wait_delays::bigint[])[width_bucket(q.id, :wait_ids::bigint[])],
        is_blocked = (:wait_blocked::boolean[])[width_bucket(q.id, :wait_ids::bigint[])],
        error = (:wait_errors::text[])[width_bucket(q.id, :wait_ids::bigint[])],
        crashes = 0
    WHERE q.ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM moved m
        CROSS JOIN generate_series((:wait_firsts::integer[])[m.n], (:wait_lasts::integer[])[m.n]) AS g(n)
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM queue r
            WHERE r.slot = m.slot AND r.instance = m.id AND r.id = (:waits::bigint[])[g.n]
            OFFSET 0
        ) found
    ))
)
--]
--[ dead
, died AS (
    INSERT INTO dead_letters (tenant, actor, slot, instance, seq, origin, attempts, crashes, cause, error, at_ms,
                              stream, group_hash, group_name, priority, event_bytes, is_indexed)
    SELECT i.tenant, i.actor, q.slot, q.instance, q.seq, coalesce(q.origin, q.id),
           (:dead_attempts::integer[])[width_bucket(q.id, :dead_ids::bigint[])], q.crashes,
           (:dead_causes::text[])[width_bucket(q.id, :dead_ids::bigint[])],
           (:dead_errors::text[])[width_bucket(q.id, :dead_ids::bigint[])], now_ms(),
           q.stream, q.group_hash, q.group_name, q.priority, q.event_bytes, q.is_indexed
    FROM (SELECT * FROM gone ORDER BY id) q
    CROSS JOIN LATERAL (SELECT i.tenant, i.actor FROM instances i WHERE i.id = q.instance OFFSET 0) i
    WHERE (:dead_ids::bigint[])[width_bucket(q.id, :dead_ids::bigint[])] = q.id
)
--]
--[ leave
, leave AS MATERIALIZED (SELECT array_agg(q.id ORDER BY q.id) AS ids FROM gone q)
--]
--: follow
--: schedules
SELECT EXISTS (SELECT 1 FROM lane) AS is_done, ARRAY(SELECT m.n FROM moved m) AS moved
--[ rows
     , (SELECT array_agg(m.id ORDER BY m.id) FROM made m) AS made
     , (SELECT array_agg(m.instance ORDER BY m.id) FROM made m) AS instances
     , (SELECT d.ids FROM drawn d) AS ids
--]
