-- The next lower priority that a group has: one search, however many rows have it.
SELECT priority FROM queue_more INDEXED BY queue_by_group
WHERE is_indexed = 1 AND instance = ?1 AND group_hash = ?2 AND priority < ?3
ORDER BY priority DESC LIMIT 1
