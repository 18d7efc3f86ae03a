UPDATE streams SET owner = ?2, epoch = epoch + 1
WHERE no = ?1
  AND (owner IS NULL OR owner = ?2
       OR NOT EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = streams.owner AND w.is_live = 1))
RETURNING epoch
