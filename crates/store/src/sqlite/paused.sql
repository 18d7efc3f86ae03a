SELECT no AS actor, NULL AS key FROM actors WHERE tenant = ?1 AND is_paused = 1
UNION ALL
SELECT p.actor, p.key FROM actors a JOIN paused_keys p ON p.actor = a.no WHERE a.tenant = ?1
ORDER BY actor, key
