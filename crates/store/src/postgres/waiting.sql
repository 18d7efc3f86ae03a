-- Instances that have rows, by slot and number, after that one. A skip scan: one look for each instance,
-- however many rows it has.
WITH RECURSIVE w AS (
    (SELECT q.slot, q.instance, 1 AS n
    FROM queue q
    WHERE (q.slot, q.instance) > (:slot::smallint, :instance::bigint) AND q.slot < :slot_end::smallint
    ORDER BY q.slot, q.instance
    LIMIT 1)
    UNION ALL
    SELECT x.slot, x.instance, w.n + 1
    FROM w
    CROSS JOIN LATERAL (
        SELECT q.slot, q.instance
        FROM queue q
        WHERE (q.slot, q.instance) > (w.slot, w.instance) AND q.slot < :slot_end::smallint
        ORDER BY q.slot, q.instance
        LIMIT 1
    ) x
    WHERE w.n < :instances_max::integer
)
SELECT w.slot, w.instance FROM w WHERE w.n <= :instances_max::integer
