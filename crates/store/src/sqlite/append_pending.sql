INSERT INTO pending (stream, seq, subscription, id) VALUES (?1, ?2, ?3, ?4)
