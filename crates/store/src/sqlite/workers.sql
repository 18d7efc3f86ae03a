SELECT boot, name, last_seen, is_live, in_flight, active, routes
FROM runtime_workers
ORDER BY is_live DESC, boot DESC LIMIT ?1
