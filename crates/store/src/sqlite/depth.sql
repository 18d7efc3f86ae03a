SELECT count(*) FROM (SELECT 1 FROM queue WHERE slot = ?1 AND instance = ?2 LIMIT ?3)
