SELECT count(*) AS rows
FROM (SELECT 1 FROM queue q WHERE q.slot = :slot::smallint AND q.instance = :instance::bigint
      LIMIT :rows_max::bigint) q
