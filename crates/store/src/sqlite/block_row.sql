UPDATE queue_more SET attempts = ?2, error = ?3, crashes = 0, not_before = NULL, is_blocked = 1 WHERE id = ?1
