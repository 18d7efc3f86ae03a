-- A run of which no event is left.
DELETE FROM runs
WHERE first = ?1 AND NOT EXISTS (SELECT 1 FROM events WHERE seq >= ?1 AND seq <= ?2)
