INSERT INTO paused (tenant, actor, key)
SELECT a.tenant, a.no, :key::text FROM actors a WHERE a.no = :actor::bigint
ON CONFLICT (actor, key) DO NOTHING
RETURNING actor
