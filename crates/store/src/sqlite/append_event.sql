INSERT INTO events (seq, time, id, source, kind, subject, content_type, headers, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
