-- Counts one death more for rows that are about to run. The instances' rows are locked, so that no claim
-- comes between.
WITH held AS MATERIALIZED (
    SELECT i.id, i.slot, x.n
    FROM unnest(:ids::bigint[], :epochs::bigint[]) WITH ORDINALITY AS x(id, epoch, n)
    CROSS JOIN LATERAL (
        SELECT i.id, i.slot FROM instances i
        WHERE i.id = x.id AND i.owner = :boot::bigint AND i.epoch = x.epoch
        FOR NO KEY UPDATE
    ) i
), marked AS (
    UPDATE queue q
    SET crashes = q.crashes + 1
    WHERE q.ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM held h
        CROSS JOIN generate_series((:firsts::integer[])[h.n::integer], (:lasts::integer[])[h.n::integer]) AS g(n)
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM queue r
            WHERE r.slot = h.slot AND r.instance = h.id AND r.id = (:rows::bigint[])[g.n]
            OFFSET 0
        ) found
    ))
)
SELECT h.n::integer AS n FROM held h
