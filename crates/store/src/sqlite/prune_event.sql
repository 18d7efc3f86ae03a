-- A deploy may have made it pending since it was looked at.
DELETE FROM events
WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM pending WHERE stream = ?2 AND seq = ?1)
