INSERT INTO tenants (name, routes_version) VALUES (?1, 0) RETURNING no
