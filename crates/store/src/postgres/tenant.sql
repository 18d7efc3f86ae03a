SELECT t.no FROM tenants t WHERE t.name = :name::text
