-- The next group of an instance: one search, however many rows the groups have.
SELECT group_hash FROM queue_more INDEXED BY queue_by_group
WHERE is_indexed = 1 AND instance = ?1 AND group_hash > ?2
ORDER BY group_hash LIMIT 1
