SELECT no FROM tenants WHERE name = ?1
