-- A replaced one keeps its number and has the next generation, so that what was read of it fires no more.
INSERT INTO scheduled_events
    (no, tenant, id, generation, fire_at, spec, cron, time_zone, catch_up, to_stream, to_actor, to_key,
     event_time, event_id, source, kind, subject, content_type, headers, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT (no) DO UPDATE
SET generation = excluded.generation, fire_at = excluded.fire_at, spec = excluded.spec,
    cron = excluded.cron, time_zone = excluded.time_zone, catch_up = excluded.catch_up,
    to_stream = excluded.to_stream, to_actor = excluded.to_actor, to_key = excluded.to_key,
    event_time = excluded.event_time, event_id = excluded.event_id, source = excluded.source,
    kind = excluded.kind, subject = excluded.subject, content_type = excluded.content_type,
    headers = excluded.headers, data = excluded.data
