INSERT INTO parked (id, tenant, seq, subscription, reason, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
