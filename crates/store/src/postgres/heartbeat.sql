UPDATE runtime_workers w
SET last_seen_ms = now_ms(), in_flight = :in_flight::integer, active = :active::integer, routes = :routes::bigint
WHERE w.boot = :boot::bigint AND w.is_live
RETURNING w.boot
