SELECT fire_at FROM scheduled_events INDEXED BY scheduled_events_by_time
WHERE fire_at > ?1
ORDER BY fire_at LIMIT 1
