-- Rows that wait from before come into the index, or nobody would find them by their group.
UPDATE queue q SET is_indexed = true
WHERE q.ctid = ANY (ARRAY(
    SELECT r.ctid
    FROM instances i
    CROSS JOIN LATERAL (
        SELECT r.ctid FROM queue r
        WHERE r.slot = i.slot AND r.instance = i.id AND NOT r.is_indexed
        OFFSET 0
    ) r
    WHERE i.actor = :actor::bigint
))
