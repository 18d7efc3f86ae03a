SELECT seq, time, id, source, kind, subject, content_type, headers, data FROM events WHERE seq = ?1
