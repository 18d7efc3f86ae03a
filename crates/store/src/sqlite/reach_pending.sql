UPDATE pending SET reached = ?4 WHERE stream = ?1 AND seq = ?2 AND id = ?3
