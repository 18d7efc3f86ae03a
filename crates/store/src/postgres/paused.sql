SELECT p.actor, p.key FROM paused p WHERE p.tenant = :tenant::bigint ORDER BY p.actor, p.key
