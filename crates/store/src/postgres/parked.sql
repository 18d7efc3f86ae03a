SELECT p.id, p.seq, p.subscription, p.reason, p.at_ms
FROM parked p
WHERE p.tenant = :tenant::bigint AND p.id > :after::bigint
ORDER BY p.id
LIMIT :events_max::bigint
