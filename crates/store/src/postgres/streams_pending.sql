-- Streams that have pending events. A skip scan: one look for each stream.
WITH RECURSIVE s AS (
    (SELECT p.stream, 1 AS n FROM pending p WHERE p.stream > :after::bigint ORDER BY p.stream LIMIT 1)
    UNION ALL
    SELECT x.stream, s.n + 1
    FROM s
    CROSS JOIN LATERAL (
        SELECT p.stream FROM pending p WHERE p.stream > s.stream ORDER BY p.stream LIMIT 1
    ) x
    WHERE s.n < :streams_max::integer
)
SELECT s.stream FROM s WHERE s.n <= :streams_max::integer
