DELETE FROM pending WHERE stream = ?1 AND seq = ?2 AND id = ?3
