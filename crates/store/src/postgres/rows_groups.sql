-- The first row by place of each group of instances whose hash is greater. A skip scan: one look for each
-- group, however many rows it has.
--: rows
FROM unnest(:slots::smallint[], :instances::bigint[], :rows_max::bigint[], :bytes_max::bigint[], :after::bigint[])
    WITH ORDINALITY AS r(slot, instance, rows_max, bytes_max, after, n)
CROSS JOIN LATERAL (
    WITH RECURSIVE g AS (
        (SELECT f.group_hash, f.id, 1::bigint AS n
        FROM queue f
        WHERE f.slot = r.slot AND f.instance = r.instance AND f.is_indexed AND f.group_hash > r.after
        ORDER BY f.group_hash, f.id
        LIMIT 1)
        UNION ALL
        SELECT x.group_hash, x.id, g.n + 1
        FROM g
        CROSS JOIN LATERAL (
            SELECT f.group_hash, f.id
            FROM queue f
            WHERE f.slot = r.slot AND f.instance = r.instance AND f.is_indexed AND f.group_hash > g.group_hash
            ORDER BY f.group_hash, f.id
            LIMIT 1
        ) x
        WHERE g.n < r.rows_max
    )
    SELECT q.*, g.n AS place, sum(q.event_bytes) OVER (ORDER BY g.n) AS bytes_so_far
    FROM g
    CROSS JOIN LATERAL (
        SELECT q.id, q.seq, q.stream, q.group_name, q.priority, q.attempts, q.crashes, q.origin, q.is_blocked,
               q.event_bytes, q.not_before_ms
        FROM queue q
        WHERE q.slot = r.slot AND q.instance = r.instance AND q.id = g.id
        OFFSET 0
    ) q
    WHERE g.n <= r.rows_max
) q
--: rows_events
