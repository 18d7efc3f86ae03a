SELECT p.id, p.subscription, p.reached, e.seq, e.time_ms, e.event_id, e.source, e.kind, e.subject, e.content_type,
       e.headers, e.data
FROM (
    SELECT p.*, row_number() OVER () AS place, sum(p.bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far
    FROM (
        SELECT p.id, p.seq, p.subscription, p.reached, e.bytes
        FROM pending p
        CROSS JOIN LATERAL (SELECT octet_length(e.data) AS bytes FROM events e WHERE e.seq = p.seq OFFSET 0) e
        WHERE p.stream = :stream::bigint
        ORDER BY p.seq, p.subscription
        LIMIT :events_max::bigint
    ) p
) p
CROSS JOIN LATERAL (
    SELECT e.seq, e.time_ms, e.id AS event_id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
    FROM events e WHERE e.seq = p.seq
    OFFSET 0
) e
WHERE p.place = 1 OR p.bytes_so_far <= :bytes_max::bigint
