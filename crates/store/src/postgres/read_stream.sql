-- Events of a stream after that place, up to the one below which all appends have ended. The pairs leave one
-- index to choose: by place alone, events of all other streams would be walked through.
SELECT e.seq, e.time_ms, e.event_id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
FROM (
    SELECT p.*, row_number() OVER () AS place, sum(p.bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far
    FROM (
        SELECT e.seq, octet_length(e.data) AS bytes
        FROM events e
        WHERE e.stream IS NOT NULL
          AND (e.stream, e.seq) > (:stream::bigint, :after::bigint)
          AND (e.stream, e.seq) <= (:stream::bigint, :up_to::bigint)
        ORDER BY e.stream, e.seq
        LIMIT :events_max::bigint
    ) p
) p
CROSS JOIN LATERAL (
    SELECT e.seq, e.time_ms, e.id AS event_id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
    FROM events e WHERE e.seq = p.seq
    OFFSET 0
) e
WHERE p.place = 1 OR p.bytes_so_far <= :bytes_max::bigint
