SELECT s.no FROM streams s WHERE s.tenant = :tenant::bigint AND s.name = :name::text
