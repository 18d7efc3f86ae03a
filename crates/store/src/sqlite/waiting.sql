-- The next instance that has rows: one search, however many rows the last one has. Asked again and again.
SELECT slot, instance FROM queue WHERE (slot, instance) > (?1, ?2) ORDER BY slot, instance LIMIT 1
