SELECT id, seq, subscription, reason, at
FROM parked INDEXED BY parked_by_tenant
WHERE tenant = ?1 AND id > ?2
ORDER BY id LIMIT ?3
