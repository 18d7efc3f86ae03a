UPDATE instances SET owner = ?1, epoch = epoch + 1 WHERE id = ?2
