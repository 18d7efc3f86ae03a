SELECT no, tenant, id, generation, fire_at, cron, time_zone, catch_up, to_stream, to_actor, to_key,
       event_time, event_id, source, kind, subject, content_type, headers, data
FROM scheduled_events
WHERE tenant = ?1 AND id > ?2
ORDER BY id LIMIT ?3
