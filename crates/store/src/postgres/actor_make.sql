INSERT INTO actors (tenant, name, is_indexed, definition)
VALUES (:tenant::bigint, :name::text, :indexed::boolean, :definition::text)
RETURNING no
