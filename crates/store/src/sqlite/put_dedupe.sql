-- No row changed: the id is known and its window is not over.
INSERT INTO dedupe (tenant, stream, source, id, seq, body_hash, expires)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT DO UPDATE
SET seq = excluded.seq, body_hash = excluded.body_hash, expires = excluded.expires
WHERE expires <= ?8
