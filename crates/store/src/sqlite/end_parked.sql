DELETE FROM parked WHERE id = ?2 AND tenant = ?1 RETURNING seq
