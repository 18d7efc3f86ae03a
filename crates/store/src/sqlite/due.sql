SELECT no, tenant, id, generation, fire_at, cron, time_zone, catch_up, to_stream, to_actor, to_key,
       event_time, event_id, source, kind, subject, content_type, headers, data
FROM scheduled_events INDEXED BY scheduled_events_by_time
WHERE fire_at <= ?1
ORDER BY fire_at, no LIMIT ?2
