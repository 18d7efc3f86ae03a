UPDATE tenants t SET routes_version = t.routes_version + 1 WHERE t.no = :tenant::bigint
