DELETE FROM lanes WHERE boot = ?1
