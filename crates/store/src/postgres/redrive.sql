-- Dead letters wait again, behind all others, in the order given. :letters is sorted, :orders says where each
-- stood.
WITH back AS (
    DELETE FROM dead_letters l
    WHERE l.id = ANY (ARRAY(
        SELECT f.id FROM dead_letters f
        WHERE f.id = ANY (:letters::bigint[]) AND f.tenant = :tenant::bigint ORDER BY f.id FOR UPDATE
    ))
    RETURNING l.id, l.slot, l.instance, l.seq, l.stream, l.group_hash, l.priority, l.event_bytes, l.is_indexed,
              l.group_name, l.origin
)
INSERT INTO queue (slot, instance, id, seq, stream, group_hash, priority, event_bytes, is_indexed, group_name, origin)
SELECT b.slot, b.instance, nextval('queue_id'), b.seq, b.stream, b.group_hash, b.priority, b.event_bytes, b.is_indexed,
       b.group_name, b.origin
FROM (
    SELECT b.* FROM back b ORDER BY (:orders::integer[])[width_bucket(b.id, :letters::bigint[])]
) b
RETURNING slot, instance, id
