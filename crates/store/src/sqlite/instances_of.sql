SELECT id, key FROM keys INDEXED BY keys_by_actor WHERE actor = ?1 AND id > ?2 ORDER BY id LIMIT ?3
