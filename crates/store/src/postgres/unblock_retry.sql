-- Blocked rows wait again, as if they had never failed.
WITH raised AS (
    UPDATE instances i SET epoch = i.epoch + 1 WHERE i.id = :instance::bigint AND i.slot = :slot::smallint RETURNING i.id
)
UPDATE queue q
SET is_blocked = false, attempts = 0, crashes = 0, not_before_ms = NULL, error = NULL
WHERE q.slot = :slot::smallint AND q.instance = :instance::bigint AND q.id = ANY (:rows::bigint[]) AND q.is_blocked
  AND EXISTS (SELECT 1 FROM raised)
RETURNING q.id
