UPDATE tenants SET routes_version = routes_version + 1 WHERE no = ?1
