-- Rows of one group of instances, the greatest priority first, equal ones by place: the rest of the priority
-- that was reached, then all lower ones. Two ranges of one index.
--: rows
FROM unnest(:slots::smallint[], :instances::bigint[], :rows_max::bigint[], :bytes_max::bigint[],
            :groups::bigint[], :priorities::bigint[], :after::bigint[])
    WITH ORDINALITY AS r(slot, instance, rows_max, bytes_max, group_hash, priority, after, n)
CROSS JOIN LATERAL (
    SELECT q.*, row_number() OVER () AS place, sum(q.event_bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far
    FROM (
        (SELECT q.id, q.seq, q.stream, q.group_name, q.priority, q.attempts, q.crashes, q.origin, q.is_blocked,
               q.event_bytes, q.not_before_ms
        FROM queue q
        WHERE q.slot = r.slot AND q.instance = r.instance AND q.is_indexed
          AND q.group_hash = r.group_hash AND q.priority = r.priority AND q.id > r.after
        ORDER BY q.id
        LIMIT r.rows_max)
        UNION ALL
        (SELECT q.id, q.seq, q.stream, q.group_name, q.priority, q.attempts, q.crashes, q.origin, q.is_blocked,
               q.event_bytes, q.not_before_ms
        FROM queue q
        WHERE q.slot = r.slot AND q.instance = r.instance AND q.is_indexed
          AND q.group_hash = r.group_hash AND q.priority < r.priority
        ORDER BY q.priority DESC, q.id
        LIMIT r.rows_max)
        LIMIT r.rows_max
    ) q
) q
--: rows_events
