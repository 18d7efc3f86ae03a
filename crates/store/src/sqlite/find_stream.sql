SELECT no FROM streams WHERE tenant = ?1 AND name = ?2
