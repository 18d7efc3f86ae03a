SELECT name FROM streams WHERE no = ?1
