SELECT s.fire_at_ms FROM scheduled_events s WHERE s.fire_at_ms > :now::bigint ORDER BY s.fire_at_ms LIMIT 1
