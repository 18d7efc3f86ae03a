SELECT i.id, i.key
FROM instances i
WHERE i.actor = :actor::bigint AND i.id > :after::bigint
ORDER BY i.id
LIMIT :instances_max::bigint
