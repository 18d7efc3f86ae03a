-- After end_more.sql.
DELETE FROM queue WHERE slot = ?1 AND instance = ?2 AND id = ?3
