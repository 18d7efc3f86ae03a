DELETE FROM paused p WHERE p.actor = :actor::bigint AND p.key = :key::text RETURNING p.actor
