-- The row as it was first, at the end of its group; after redrive_more.sql, before its letter ends.
INSERT INTO queue (slot, instance, id, seq, stream, event_bytes, more)
SELECT slot, instance, ?3, seq, stream, event_bytes, ?3 FROM dead_letters WHERE id = ?2 AND tenant = ?1
