SELECT seq, time, id, source, kind, subject, content_type, headers, data
FROM events WHERE seq >= ?1 AND seq <= ?2
ORDER BY seq LIMIT ?3
