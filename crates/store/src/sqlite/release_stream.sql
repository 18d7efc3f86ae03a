UPDATE streams SET owner = NULL WHERE no = ?1 AND owner = ?2 AND epoch = ?3
