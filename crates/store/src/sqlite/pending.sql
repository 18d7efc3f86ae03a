SELECT p.id, p.subscription, p.reached,
       e.seq, e.time, e.id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
FROM pending p JOIN events e ON e.seq = p.seq
WHERE p.stream = ?1
ORDER BY p.seq, p.subscription LIMIT ?2
