-- Turns pending rows into rows of queues, for the stream's leaseholder. Without the lease the lane is not
-- counted either.
WITH drawn AS MATERIALIZED (
    SELECT :seqs::bigint[] AS seqs, d.ids, d.at_ms FROM draw(0, :rows::integer) d
), lease AS MATERIALIZED (
    SELECT s.no FROM streams s
    WHERE s.no = :stream::bigint AND s.lease_boot = :boot::bigint AND s.lease_epoch = :epoch::bigint
    FOR NO KEY UPDATE
), lane AS (
    UPDATE lanes l
    SET batch_no = :number::bigint, seq_first = NULL, seq_last = NULL,
        row_first = d.ids[1], row_last = d.ids[:rows::integer]
    FROM drawn d
    WHERE l.boot = :boot::bigint AND l.lane = :lane::integer AND l.batch_no = :number::bigint - 1
      AND EXISTS (SELECT 1 FROM lease)
      AND EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live)
    RETURNING l.batch_no
), done AS (
    DELETE FROM pending p
    WHERE p.ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM lane l CROSS JOIN unnest(:done_seqs::bigint[], :done_ids::bigint[]) AS x(seq, id)
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM pending r
            WHERE r.stream = :stream::bigint AND r.seq = x.seq AND r.id = x.id
            OFFSET 0
        ) found
    ))
    RETURNING p.id
), goes_on AS (
    UPDATE pending p
    SET reached = (:on_reached::bigint[])[width_bucket(p.id, :on_ids::bigint[])]
    WHERE p.ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM lane l CROSS JOIN unnest(:on_seqs::bigint[], :on_ids::bigint[]) AS x(seq, id)
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM pending r
            WHERE r.stream = :stream::bigint AND r.seq = x.seq AND r.id = x.id
            OFFSET 0
        ) found
    ))
    RETURNING p.id
), leave AS MATERIALIZED (
    SELECT array_agg(x.id ORDER BY x.id) AS ids
    FROM (SELECT d.id FROM done d UNION ALL SELECT g.id FROM goes_on g) x
)
--: follow
SELECT EXISTS (SELECT 1 FROM lane) AS is_done
--[ rows
     , (SELECT array_agg(m.id ORDER BY m.id) FROM made m) AS made
     , (SELECT array_agg(m.instance ORDER BY m.id) FROM made m) AS instances
     , d.ids
--]
FROM drawn d
