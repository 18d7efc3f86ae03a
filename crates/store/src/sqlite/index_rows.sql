-- An actor whose rows are told apart from now on: those that wait come into the index.
UPDATE queue_more SET is_indexed = 1
WHERE is_indexed = 0
  AND id IN (SELECT q.id FROM keys k INDEXED BY keys_by_actor CROSS JOIN queue q ON q.slot = k.slot AND q.instance = k.id
             WHERE k.actor = ?1)
