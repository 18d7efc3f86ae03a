-- Appends events with all that follows directly. :number counts the lane; a second copy finds no lane row
-- and does nothing.
WITH drawn AS MATERIALIZED (
    SELECT d.seqs, d.ids, d.at_ms FROM draw(:events::integer, :rows::integer) d
), lane AS (
    UPDATE lanes l
    SET batch_no = :number::bigint, seq_first = d.seqs[1], seq_last = d.seqs[:events::integer],
        row_first = d.ids[1], row_last = d.ids[:rows::integer]
    FROM drawn d
    WHERE l.boot = :boot::bigint AND l.lane = :lane::integer AND l.batch_no = :number::bigint - 1
      AND EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live)
    RETURNING l.batch_no
)
--[ all
, leave AS MATERIALIZED (SELECT l.batch_no FROM lane l)
--]
--[ dedupe
-- In the order of keys: two batches that share some wait for each other, never in a circle. A twin that is
-- not committed yet is waited for; a known id whose window is over is taken over.
, known AS (
    INSERT INTO dedupe AS k (tenant, stream, key, seq, body_hash, expires_ms)
    SELECT x.tenant, x.stream, x.key, x.seq, x.body_hash, x.expires_ms
    FROM (
        SELECT e.tenant, e.stream,
               sha256(convert_to(length(e.source) || ':' || e.source || e.id, 'UTF8')) AS key,
               d.seqs[e.event] AS seq, e.body_hash, d.at_ms + e.window_ms AS expires_ms
        FROM lane l CROSS JOIN drawn d CROSS JOIN unnest(
            :dedupe_event::integer[], :dedupe_tenant::bigint[], :dedupe_stream::bigint[],
            :dedupe_source::text[], :dedupe_id::text[], :dedupe_hash::bigint[], :dedupe_window::bigint[]
        ) AS e(event, tenant, stream, source, id, body_hash, window_ms)
        ORDER BY 1, 2, 3
    ) x
    ON CONFLICT (tenant, stream, key) DO UPDATE
    SET seq = excluded.seq, body_hash = excluded.body_hash, expires_ms = excluded.expires_ms
    WHERE k.expires_ms <= now_ms()
    RETURNING k.seq
), fresh AS MATERIALIZED (
    SELECT array_agg(k.seq ORDER BY k.seq) AS seqs FROM known k
), leave AS MATERIALIZED (
    SELECT array_agg(e.n ORDER BY e.n) AS ids
    FROM lane l CROSS JOIN drawn d CROSS JOIN fresh f
    CROSS JOIN unnest(:event_deduped::boolean[]) WITH ORDINALITY AS e(is_deduped, n)
    WHERE NOT e.is_deduped OR f.seqs[width_bucket(d.seqs[e.n::integer], f.seqs)] = d.seqs[e.n::integer]
)
--]
--: follow
SELECT EXISTS (SELECT 1 FROM lane) AS is_done, d.seqs, d.ids
--[ cold
     , (SELECT array_agg(m.instance ORDER BY m.id) FROM made m) AS instances
     , (SELECT array_agg(m.id ORDER BY m.id) FROM made m) AS made
--]
--[ dedupe
     , (SELECT l.ids FROM leave l) AS fresh
--]
FROM drawn d
