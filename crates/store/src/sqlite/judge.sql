UPDATE runtime_workers SET is_live = 0 WHERE boot <> ?1 AND is_live = 1 AND last_seen < ?2 RETURNING boot
