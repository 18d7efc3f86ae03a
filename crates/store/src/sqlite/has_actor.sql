SELECT 1 FROM actors WHERE no = ?2 AND tenant = ?1
