SELECT 1 FROM runtime_workers WHERE boot = ?1 AND is_live = 1
