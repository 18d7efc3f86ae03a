INSERT INTO keys (id, slot, tenant, actor, key) VALUES (?1, ?2, ?3, ?4, ?5)
