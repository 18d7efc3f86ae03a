SELECT s.no, s.actor, s.stream, s.place, s.is_direct, s.kind, s.spec
FROM subscriptions s
WHERE s.tenant = :tenant::bigint AND s.is_live
ORDER BY s.actor, s.place, s.no
