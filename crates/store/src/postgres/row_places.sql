-- Rows that a batch made, when its answer was lost: those that its transaction wrote, between the places that
-- it drew, of instances that it named. Rows that have gone since, or were put off, are not found.
SELECT DISTINCT q.id, q.seq, q.slot, q.instance
FROM lanes l
CROSS JOIN unnest(:actors::bigint[], :keys::text[]) AS x(actor, key)
CROSS JOIN LATERAL (
    SELECT i.id, i.slot FROM instances i WHERE i.actor = x.actor AND i.key = x.key OFFSET 0
) i
CROSS JOIN LATERAL (
    SELECT q.id, q.seq, q.slot, q.instance FROM queue q
    WHERE q.slot = i.slot AND q.instance = i.id AND q.id BETWEEN l.row_first AND l.row_last AND q.xmin = l.xmin
    OFFSET 0
) q
WHERE l.boot = :boot::bigint AND l.lane = :lane::integer
ORDER BY q.id
