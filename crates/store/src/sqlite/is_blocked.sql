SELECT 1 FROM queue_more WHERE id = ?3 AND instance = ?2 AND slot = ?1 AND is_blocked = 1
