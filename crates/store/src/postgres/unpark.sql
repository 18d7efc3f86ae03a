-- Parked events that get a place become rows, in the order given; the others are dropped. Instances were made
-- in the same transaction, before. Arrays of rows are in the order of :row_ids, which is sorted.
WITH out AS (
    DELETE FROM parked p
    WHERE p.id = ANY (ARRAY(
        SELECT f.id FROM parked f
        WHERE f.id = ANY (:ids::bigint[]) AND f.tenant = :tenant::bigint ORDER BY f.id FOR UPDATE
    ))
    RETURNING p.id, p.seq, p.stream, p.event_bytes
)
INSERT INTO queue (slot, instance, id, seq, stream, group_hash, priority, event_bytes, is_indexed, group_name)
SELECT (:row_slots::smallint[])[x.n], i.id, nextval('queue_id'), x.seq, x.stream, (:row_hashes::bigint[])[x.n],
       (:row_priorities::integer[])[x.n], x.event_bytes, (:row_indexed::boolean[])[x.n], (:row_groups::text[])[x.n]
FROM (
    SELECT o.seq, o.stream, o.event_bytes, width_bucket(o.id, :row_ids::bigint[]) AS n
    FROM out o
    WHERE (:row_ids::bigint[])[width_bucket(o.id, :row_ids::bigint[])] = o.id
    ORDER BY (:row_orders::integer[])[width_bucket(o.id, :row_ids::bigint[])]
) x
LEFT JOIN LATERAL (
    SELECT i.id FROM instances i
    WHERE i.actor = (:row_actors::bigint[])[x.n] AND i.key = (:row_keys::text[])[x.n]
    OFFSET 0
) i ON true
RETURNING slot, instance, id
