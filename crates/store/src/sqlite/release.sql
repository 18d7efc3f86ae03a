UPDATE instances SET owner = NULL WHERE id = ?1 AND owner = ?2 AND epoch = ?3
