SELECT 1 FROM streams WHERE no = ?1 AND owner = ?2 AND epoch = ?3
