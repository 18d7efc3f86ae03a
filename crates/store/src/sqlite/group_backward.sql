SELECT id FROM queue_more INDEXED BY queue_by_group
WHERE is_indexed = 1 AND instance = ?1 AND group_hash = ?2 AND priority = ?3 AND id < ?4
ORDER BY id DESC LIMIT ?5
