INSERT INTO queue_more (id, slot, instance)
SELECT q.id, q.slot, q.instance
FROM keys k INDEXED BY keys_by_actor CROSS JOIN queue q ON q.slot = k.slot AND q.instance = k.id
WHERE k.actor = ?1
ON CONFLICT DO NOTHING
