UPDATE actors SET is_paused = ?2 WHERE no = ?1 AND is_paused <> ?2
