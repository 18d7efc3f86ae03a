UPDATE runtime_workers SET is_live = 0 WHERE boot = ?1
