-- The oldest events that are old enough, after that place; those that nothing names go. Returns how far it
-- looked, and how many went.
WITH old AS MATERIALIZED (
    SELECT e.seq, e.stream, e.appended_ms
    FROM events e
    WHERE e.seq > :after::bigint
    ORDER BY e.seq
    LIMIT :rows_max::bigint
), gone AS (
    DELETE FROM events e
    WHERE e.seq = ANY (ARRAY(
        SELECT o.seq FROM old o
        WHERE o.appended_ms < :before::bigint
          AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.seq = o.seq OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.stream = o.stream AND p.seq = o.seq OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM dead_letters l WHERE l.seq = o.seq OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM parked p WHERE p.seq = o.seq OFFSET 0)
    ))
    RETURNING e.seq
)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM old) AS looked,
       (SELECT max(o.seq) FROM old o WHERE o.appended_ms < :before::bigint) AS last
