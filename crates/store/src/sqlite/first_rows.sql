SELECT id FROM queue WHERE slot = ?1 AND instance = ?2 ORDER BY id LIMIT ?3
