SELECT 1 FROM instances WHERE id = ?1 AND owner = ?2 AND epoch = ?3
