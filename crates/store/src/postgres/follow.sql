--[ events
, event AS (
    INSERT INTO events (seq, tenant, stream, time_ms, appended_ms, id, source, kind, subject, content_type,
                        headers, data)
    SELECT d.seqs[e.n::integer], e.tenant, e.stream, e.time_ms, d.at_ms, e.id, e.source, e.kind, e.subject,
           e.content_type, e.headers, e.data
    FROM leave l CROSS JOIN drawn d CROSS JOIN unnest(
        :event_parent::bigint[], :event_tenant::bigint[], :event_stream::bigint[], :event_time::bigint[],
        :event_id::text[], :event_source::text[], :event_kind::text[], :event_subject::text[],
        :event_content_type::text[], :event_headers::text[], :event_data::bytea[]
    ) WITH ORDINALITY
        AS e(parent, tenant, stream, time_ms, id, source, kind, subject, content_type, headers, data, n)
--[ some
    WHERE l.ids[width_bucket(e.parent, l.ids)] = e.parent
--]
)
--]
--[ rows
, made AS (
    INSERT INTO queue (slot, instance, id, seq, stream, group_hash, priority, event_bytes, is_indexed, group_name)
--[ warm
    SELECT r.slot, r.instance,
--]
--[ cold
    SELECT r.slot, i.id,
--]
           d.ids[r.n::integer], d.seqs[r.event], r.stream, r.group_hash, r.priority, r.event_bytes,
           r.is_indexed, r.group_name
    FROM leave l CROSS JOIN drawn d CROSS JOIN unnest(
        :row_parent::bigint[], :row_event::integer[], :row_slot::smallint[], :row_instance::bigint[],
        :row_stream::bigint[], :row_group_hash::bigint[], :row_priority::integer[], :row_bytes::integer[],
        :row_indexed::boolean[], :row_group::text[]
--[ cold
        , :row_actor::bigint[], :row_key::text[]
--]
    ) WITH ORDINALITY AS r(parent, event, slot, instance, stream, group_hash, priority, event_bytes, is_indexed,
                           group_name
--[ cold
                           , actor, key
--]
                           , n)
--[ cold
    -- Not found is a NULL where none may be: the whole batch fails, and no row is lost in silence.
    LEFT JOIN LATERAL (
        SELECT r.instance AS id WHERE r.instance <> 0
        UNION ALL
        SELECT i.id FROM instances i WHERE r.instance = 0 AND i.actor = r.actor AND i.key = r.key
    ) i ON true
--]
--[ some
    WHERE l.ids[width_bucket(r.parent, l.ids)] = r.parent
--]
    RETURNING id, instance
)
--]
--[ pending
, waiting AS (
    INSERT INTO pending (stream, seq, subscription, id)
    SELECT p.stream, d.seqs[p.event], p.subscription, nextval('pending_id')
    FROM leave l CROSS JOIN drawn d CROSS JOIN unnest(
        :pending_parent::bigint[], :pending_event::integer[], :pending_stream::bigint[],
        :pending_subscription::bigint[]
    ) WITH ORDINALITY AS p(parent, event, stream, subscription, n)
--[ some
    WHERE l.ids[width_bucket(p.parent, l.ids)] = p.parent
--]
)
--]
--[ parked
, put_by AS (
    INSERT INTO parked (tenant, seq, stream, subscription, at_ms, event_bytes, reason)
    SELECT p.tenant, d.seqs[p.event], p.stream, p.subscription, d.at_ms, p.event_bytes, p.reason
    FROM leave l CROSS JOIN drawn d CROSS JOIN unnest(
        :parked_parent::bigint[], :parked_event::integer[], :parked_tenant::bigint[], :parked_stream::bigint[],
        :parked_subscription::bigint[], :parked_bytes::integer[], :parked_reason::text[]
    ) WITH ORDINALITY AS p(parent, event, tenant, stream, subscription, event_bytes, reason, n)
--[ some
    WHERE l.ids[width_bucket(p.parent, l.ids)] = p.parent
--]
)
--]
