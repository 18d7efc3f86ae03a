INSERT INTO actors (tenant, name, is_indexed, is_paused, definition) VALUES (?1, ?2, ?3, 0, ?4) RETURNING no
