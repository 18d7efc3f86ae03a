DELETE FROM dead_letters WHERE id = ?2 AND tenant = ?1 RETURNING slot, instance
