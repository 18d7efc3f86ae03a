-- Schedules that still are as they were read go on or end, and what follows from them is appended. Parents are
-- the firings, from 1, in the order of schedules; those that fired are kept in the lane's row, for a firing
-- leaves nothing else that tells it from another.
WITH drawn AS MATERIALIZED (
    SELECT d.seqs, d.ids, d.at_ms FROM draw(:events::integer, :rows::integer) d
), lane AS (
    SELECT l.batch_no FROM lanes l
    WHERE l.boot = :boot::bigint AND l.lane = :lane::integer AND l.batch_no = :number::bigint - 1
      AND EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live)
    FOR NO KEY UPDATE
), held AS MATERIALIZED (
    SELECT DISTINCT ON (s.no) s.no, x.is_over, x.next_ms, x.n
    FROM lane l
    CROSS JOIN unnest(:nos::bigint[], :generations::bigint[], :fire_ats::bigint[], :over::boolean[], :nexts::bigint[])
        WITH ORDINALITY AS x(no, generation, fire_at_ms, is_over, next_ms, n)
    CROSS JOIN LATERAL (
        SELECT s.no FROM scheduled_events s
        WHERE s.no = x.no AND s.generation = x.generation AND s.fire_at_ms = x.fire_at_ms
        FOR UPDATE
    ) s
    ORDER BY s.no, x.n
), next AS MATERIALIZED (
    SELECT array_agg(h.no ORDER BY h.no) AS nos, array_agg(h.next_ms ORDER BY h.no) AS times
    FROM held h WHERE NOT h.is_over
), goes_on AS (
    UPDATE scheduled_events s
    SET fire_at_ms = (SELECT x.times[width_bucket(s.no, x.nos)] FROM next x)
    WHERE s.no = ANY ((SELECT x.nos FROM next x)::bigint[])
), ended AS (
    DELETE FROM scheduled_events s
    WHERE s.no = ANY (ARRAY(SELECT h.no FROM held h WHERE h.is_over))
), leave AS MATERIALIZED (
    SELECT array_agg(h.n ORDER BY h.n) AS ids FROM held h
), counted AS (
    UPDATE lanes l
    SET batch_no = :number::bigint, seq_first = d.seqs[1], seq_last = d.seqs[:events::integer],
        row_first = d.ids[1], row_last = d.ids[:rows::integer], report = x.ids
    FROM drawn d CROSS JOIN leave x
    WHERE l.boot = :boot::bigint AND l.lane = :lane::integer AND EXISTS (SELECT 1 FROM lane)
)
--: follow
SELECT EXISTS (SELECT 1 FROM lane) AS is_done, l.ids AS fired
--[ rows
     , (SELECT array_agg(m.id ORDER BY m.id) FROM made m) AS made
     , (SELECT array_agg(m.instance ORDER BY m.id) FROM made m) AS instances
     , d.ids
--]
FROM leave l CROSS JOIN drawn d
