-- A row of which queue_more has more.
INSERT INTO queue (slot, instance, id, seq, stream, event_bytes, more) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?3)
