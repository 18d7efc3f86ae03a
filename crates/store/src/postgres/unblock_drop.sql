WITH raised AS (
    UPDATE instances i SET epoch = i.epoch + 1 WHERE i.id = :instance::bigint AND i.slot = :slot::smallint RETURNING i.id
)
DELETE FROM queue q
WHERE q.slot = :slot::smallint AND q.instance = :instance::bigint AND q.id = ANY (:rows::bigint[]) AND q.is_blocked
  AND EXISTS (SELECT 1 FROM raised)
RETURNING q.id
