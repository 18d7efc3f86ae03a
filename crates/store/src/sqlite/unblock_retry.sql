UPDATE queue_more SET is_blocked = 0, attempts = 0, crashes = 0, not_before = NULL, error = NULL
WHERE id = ?3 AND instance = ?2 AND slot = ?1 AND is_blocked = 1
