UPDATE streams s
SET lease_boot = :boot::bigint, lease_epoch = s.lease_epoch + 1
WHERE s.no = :stream::bigint
  AND (s.lease_boot IS NULL OR s.lease_boot = :boot::bigint
       OR NOT EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = s.lease_boot AND w.is_live))
  AND EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live)
RETURNING s.lease_epoch
