SELECT 1 FROM tenants WHERE no = ?1
