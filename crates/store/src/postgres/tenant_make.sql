INSERT INTO tenants (name) VALUES (:name::text) ON CONFLICT (name) DO NOTHING RETURNING no
