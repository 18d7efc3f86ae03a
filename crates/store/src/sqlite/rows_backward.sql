SELECT q.id, q.seq, q.stream, m.group_text, coalesce(m.priority, 0), m.not_before, coalesce(m.attempts, 0),
       coalesce(m.crashes, 0), m.origin, coalesce(m.is_blocked, 0), q.event_bytes
FROM queue q LEFT JOIN queue_more m ON m.id = q.more
WHERE q.slot = ?1 AND q.instance = ?2 AND q.id < ?3
ORDER BY q.id DESC LIMIT ?4
