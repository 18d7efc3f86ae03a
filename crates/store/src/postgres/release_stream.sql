UPDATE streams s
SET lease_boot = NULL
WHERE s.no = :stream::bigint AND s.lease_boot = :boot::bigint AND s.lease_epoch = :epoch::bigint
