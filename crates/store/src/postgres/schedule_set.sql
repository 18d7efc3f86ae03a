-- Another spec makes it another one; the same changes nothing and returns no row.
INSERT INTO scheduled_events AS s (tenant, id, generation, spec, fire_at_ms, cron_expression, cron_zone, cron_catch_up,
    to_stream, to_actor, to_key, event_id, event_time_ms, source, kind, subject, content_type, headers, data)
VALUES (:tenant::bigint, :id::text, 1, :spec::text, coalesce(:at::bigint, now_ms() + :delay::bigint), :cron::text,
    :zone::text, :catch_up::text, :stream::bigint, :actor::bigint, :key::text, :event_id::text, :time::bigint,
    :source::text, :kind::text, :subject::text, :content_type::text, :headers::text, :data::bytea)
ON CONFLICT (tenant, id) DO UPDATE
SET generation = s.generation + 1, spec = excluded.spec, fire_at_ms = excluded.fire_at_ms,
    cron_expression = excluded.cron_expression, cron_zone = excluded.cron_zone, cron_catch_up = excluded.cron_catch_up,
    to_stream = excluded.to_stream, to_actor = excluded.to_actor, to_key = excluded.to_key,
    event_id = excluded.event_id, event_time_ms = excluded.event_time_ms, source = excluded.source,
    kind = excluded.kind, subject = excluded.subject, content_type = excluded.content_type, headers = excluded.headers,
    data = excluded.data
WHERE s.spec IS DISTINCT FROM excluded.spec
RETURNING s.no
