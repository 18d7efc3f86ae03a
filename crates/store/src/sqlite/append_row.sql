-- A row with nothing beside its place and its event, as most are.
INSERT INTO queue (slot, instance, id, seq, stream, event_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
