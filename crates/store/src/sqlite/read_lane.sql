SELECT number FROM lanes WHERE boot = ?1 AND lane = ?2
