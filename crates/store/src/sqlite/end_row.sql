-- The whole primary key: one search, one row. No row changed: it is gone, or there is more of it.
DELETE FROM queue WHERE slot = ?1 AND instance = ?2 AND id = ?3 AND more IS NULL
