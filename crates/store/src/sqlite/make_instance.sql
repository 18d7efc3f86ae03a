INSERT INTO instances (id, epoch, version) VALUES (?1, 0, 0)
