SELECT t.routes_version FROM tenants t WHERE t.no = :tenant::bigint
--[ lock
FOR NO KEY UPDATE
--]
