SELECT r.n, q.place, q.id, q.seq, q.stream, q.group_name, q.priority, q.attempts, q.crashes, q.origin, q.is_blocked,
       q.event_bytes, greatest(q.not_before_ms - (SELECT now_ms()), 0) AS delay_ms, e.seq AS event_seq, e.time_ms,
       e.id AS event_id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
