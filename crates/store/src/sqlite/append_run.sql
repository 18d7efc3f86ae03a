INSERT INTO runs (first, last, stream, at) VALUES (?1, ?2, ?3, ?4)
