SELECT l.id, l.slot, l.instance, l.actor, i.key, l.seq, l.origin, l.attempts, l.crashes, l.cause, l.error, l.at_ms
FROM (
    SELECT l.* FROM dead_letters l
    WHERE l.tenant = :tenant::bigint AND l.id > :after::bigint
--[ actor
      AND l.actor = :actor::bigint
--]
    ORDER BY l.id
    LIMIT :letters_max::bigint
) l
CROSS JOIN LATERAL (SELECT i.key FROM instances i WHERE i.id = l.instance OFFSET 0) i
ORDER BY l.id
