INSERT INTO subscriptions (actor, stream, place, definition) VALUES (?1, ?2, ?3, ?4) RETURNING no
