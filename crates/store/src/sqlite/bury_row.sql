-- The letter; its row ends in a statement of its own.
INSERT INTO dead_letters
    (id, tenant, actor, slot, instance, seq, stream, event_bytes, is_indexed, is_tracked, group_hash, group_text,
     priority, origin, attempts, crashes, cause, error, at)
SELECT ?4, k.tenant, k.actor, q.slot, q.instance, q.seq, q.stream, q.event_bytes, coalesce(m.is_indexed, 0),
       m.tracked_seq IS NOT NULL, coalesce(m.group_hash, 0), m.group_text, coalesce(m.priority, 0),
       coalesce(m.origin, q.id), ?5, coalesce(m.crashes, 0), ?6, ?7, ?8
FROM queue q CROSS JOIN keys k ON k.id = q.instance LEFT JOIN queue_more m ON m.id = q.more
WHERE q.slot = ?1 AND q.instance = ?2 AND q.id = ?3
