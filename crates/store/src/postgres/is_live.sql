SELECT EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live) AS is_live
