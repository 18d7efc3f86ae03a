SELECT i.id, i.slot, i.actor, i.key, i.owner, i.epoch, i.version, i.state
FROM instances i
WHERE i.actor = :actor::bigint AND i.key = :key::text
