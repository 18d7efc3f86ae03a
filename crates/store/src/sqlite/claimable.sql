-- The instance as a claim finds it: whether its owner lives, and whether rows wait.
SELECT k.tenant, k.actor, k.key, i.epoch, i.version, i.state, i.owner,
       EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = i.owner AND w.is_live = 1),
       EXISTS (SELECT 1 FROM queue q WHERE q.slot = k.slot AND q.instance = k.id)
FROM keys k CROSS JOIN instances i ON i.id = k.id
WHERE k.id = ?1 AND k.slot = ?2
