SELECT w.boot, w.name, greatest(now_ms() - w.last_seen_ms, 0) AS silent_ms, w.is_live, w.in_flight, w.active, w.routes
FROM runtime_workers w
ORDER BY w.is_live DESC, w.boot DESC
LIMIT :workers_max::bigint
