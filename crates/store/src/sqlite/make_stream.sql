INSERT INTO streams (tenant, name, epoch) VALUES (?1, ?2, 0) RETURNING no
