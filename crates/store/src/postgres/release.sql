-- Gives instances back. Those of another epoch stay as they are.
UPDATE instances i
SET owner = NULL
WHERE i.id = ANY (:ids::bigint[])
  AND i.owner = :boot::bigint
  AND i.epoch = (:epochs::bigint[])[width_bucket(i.id, :ids::bigint[])]
