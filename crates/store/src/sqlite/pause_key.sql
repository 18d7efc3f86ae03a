INSERT INTO paused_keys (actor, key) VALUES (?1, ?2) ON CONFLICT DO NOTHING
