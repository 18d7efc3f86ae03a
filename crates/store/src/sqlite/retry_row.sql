UPDATE queue_more SET attempts = ?2, not_before = ?3, error = ?4, crashes = 0 WHERE id = ?1
