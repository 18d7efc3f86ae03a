LEFT JOIN LATERAL (
    SELECT e.seq, e.time_ms, e.id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
    FROM events e
    WHERE e.seq = q.seq AND r.bytes_max > 0 AND (q.place = 1 OR q.bytes_so_far <= r.bytes_max)
    OFFSET 0
) e ON true
