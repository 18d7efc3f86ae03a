UPDATE runtime_workers w SET is_live = false WHERE w.boot = :boot::bigint
