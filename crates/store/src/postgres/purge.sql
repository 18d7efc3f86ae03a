WITH raised AS (
    UPDATE instances i SET epoch = i.epoch + 1 WHERE i.id = :instance::bigint AND i.slot = :slot::smallint RETURNING i.id
)
DELETE FROM queue q
WHERE q.ctid = ANY (ARRAY(
    SELECT r.ctid FROM queue r
    WHERE r.slot = :slot::smallint AND r.instance = :instance::bigint AND EXISTS (SELECT 1 FROM raised)
    ORDER BY r.id
    LIMIT :rows_max::bigint
))
RETURNING q.id
