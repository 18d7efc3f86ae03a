--[ schedules
-- The last wish for each schedule counts. A cancel before it makes it a new one even if its spec is the same:
-- that shows in the generation, 2 where it would be 1.
, wish AS MATERIALIZED (
    SELECT DISTINCT ON (w.tenant, w.id) w.*, bool_or(w.is_cancel) OVER (PARTITION BY w.tenant, w.id) AS is_anew
    FROM leave l CROSS JOIN unnest(
        :wish_parent::bigint[], :wish_tenant::bigint[], :wish_cancel::boolean[], :wish_id::text[],
        :wish_spec::text[], :wish_delay::bigint[], :wish_at::bigint[], :wish_cron::text[], :wish_zone::text[],
        :wish_catch_up::text[], :wish_stream::bigint[], :wish_actor::bigint[], :wish_key::text[],
        :wish_event_id::text[], :wish_time::bigint[], :wish_source::text[], :wish_kind::text[],
        :wish_subject::text[], :wish_content_type::text[], :wish_headers::text[], :wish_data::bytea[]
    ) WITH ORDINALITY AS w(parent, tenant, is_cancel, id, spec, delay_ms, at_ms, cron_expression, cron_zone,
                           cron_catch_up, to_stream, to_actor, to_key, event_id, event_time_ms, source, kind, subject,
                           content_type, headers, data, n)
    WHERE l.ids[width_bucket(w.parent, l.ids)] = w.parent
    ORDER BY w.tenant, w.id, w.n DESC
), cancelled AS (
    DELETE FROM scheduled_events s
    WHERE s.no = ANY (ARRAY(
        SELECT x.no FROM wish w
        CROSS JOIN LATERAL (
            SELECT s.no FROM scheduled_events s WHERE s.tenant = w.tenant AND s.id = w.id FOR UPDATE
        ) x
        WHERE w.is_cancel
    ))
), put AS (
    INSERT INTO scheduled_events AS s (tenant, id, generation, spec, fire_at_ms, cron_expression, cron_zone,
        cron_catch_up, to_stream, to_actor, to_key, event_id, event_time_ms, source, kind, subject, content_type,
        headers, data)
    SELECT w.tenant, w.id, CASE WHEN w.is_anew THEN 2 ELSE 1 END, w.spec, coalesce(w.at_ms, now_ms() + w.delay_ms),
           w.cron_expression, w.cron_zone, w.cron_catch_up, w.to_stream, w.to_actor, w.to_key, w.event_id,
           w.event_time_ms, w.source, w.kind, w.subject, w.content_type, w.headers, w.data
    FROM wish w WHERE NOT w.is_cancel
    ON CONFLICT (tenant, id) DO UPDATE
    SET generation = s.generation + 1, spec = excluded.spec, fire_at_ms = excluded.fire_at_ms,
        cron_expression = excluded.cron_expression, cron_zone = excluded.cron_zone,
        cron_catch_up = excluded.cron_catch_up, to_stream = excluded.to_stream, to_actor = excluded.to_actor,
        to_key = excluded.to_key, event_id = excluded.event_id, event_time_ms = excluded.event_time_ms,
        source = excluded.source, kind = excluded.kind, subject = excluded.subject,
        content_type = excluded.content_type, headers = excluded.headers, data = excluded.data
    WHERE s.spec IS DISTINCT FROM excluded.spec OR excluded.generation = 2
)
--]
