-- By key, from the first that may begin so; the reader stops at the first that does not.
SELECT k.id, k.slot, k.key, i.owner, i.epoch, i.version, i.state
FROM keys k CROSS JOIN instances i ON i.id = k.id
WHERE k.actor = ?1 AND k.key >= ?2
ORDER BY k.key LIMIT ?3
