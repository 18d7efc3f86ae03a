SELECT s.no, s.tenant, s.id, s.generation, s.fire_at_ms, s.cron_expression, s.cron_zone, s.cron_catch_up, s.to_stream,
       s.to_actor, s.to_key, s.event_id, s.event_time_ms, s.source, s.kind, s.subject, s.content_type, s.headers, s.data
FROM scheduled_events s
WHERE s.fire_at_ms <= :now::bigint
ORDER BY s.fire_at_ms, s.no
LIMIT :schedules_max::bigint
