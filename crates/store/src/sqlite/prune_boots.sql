DELETE FROM runtime_workers WHERE boot IN
    (SELECT boot FROM runtime_workers w
     WHERE is_live = 0
       AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.owner = w.boot)
       AND NOT EXISTS (SELECT 1 FROM streams s WHERE s.owner = w.boot)
     ORDER BY boot LIMIT ?1)
RETURNING boot
