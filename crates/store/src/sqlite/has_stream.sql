SELECT 1 FROM streams WHERE no = ?2 AND tenant = ?1
