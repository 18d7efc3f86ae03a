INSERT INTO streams (tenant, name) VALUES (:tenant::bigint, :name::text)
ON CONFLICT (tenant, name) DO NOTHING RETURNING no
