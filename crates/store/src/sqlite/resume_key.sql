DELETE FROM paused_keys WHERE actor = ?1 AND key = ?2
