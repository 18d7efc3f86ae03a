-- By key, after that one, while it begins so.
SELECT i.id, i.slot, i.actor, i.key, i.owner, i.epoch, i.version, i.state
FROM instances i
WHERE i.actor = :actor::bigint AND i.key > :after::text
--[ prefix
  AND i.key >= :prefix::text
--]
--[ end
  AND i.key < :end::text
--]
ORDER BY i.key
LIMIT :instances_max::bigint
