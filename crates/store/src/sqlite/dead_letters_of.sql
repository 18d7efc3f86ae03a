SELECT d.id, d.slot, d.instance, d.actor, k.key, d.seq, d.origin, d.attempts, d.crashes, d.cause, d.error, d.at
FROM dead_letters d INDEXED BY dead_letters_by_actor CROSS JOIN keys k ON k.id = d.instance
WHERE d.tenant = ?1 AND d.actor = ?4 AND d.id > ?2
ORDER BY d.id LIMIT ?3
