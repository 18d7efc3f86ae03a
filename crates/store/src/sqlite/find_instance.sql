SELECT id, slot FROM keys WHERE actor = ?1 AND key = ?2
