-- Before index_rows.sql: each row that waits for the actor has more.
UPDATE queue SET more = id
WHERE more IS NULL
  AND (slot, instance) IN (SELECT slot, id FROM keys INDEXED BY keys_by_actor WHERE actor = ?1)
