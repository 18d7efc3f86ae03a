-- Rows of instances by place, after that one.
--: rows
FROM unnest(:slots::smallint[], :instances::bigint[], :rows_max::bigint[], :bytes_max::bigint[], :after::bigint[])
    WITH ORDINALITY AS r(slot, instance, rows_max, bytes_max, after, n)
CROSS JOIN LATERAL (
    SELECT q.*, row_number() OVER () AS place, sum(q.event_bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far
    FROM (
        SELECT q.id, q.seq, q.stream, q.group_name, q.priority, q.attempts, q.crashes, q.origin, q.is_blocked,
               q.event_bytes, q.not_before_ms
        FROM queue q
        WHERE q.slot = r.slot AND q.instance = r.instance AND q.id > r.after
        ORDER BY q.id
        LIMIT r.rows_max
    ) q
) q
--: rows_events
