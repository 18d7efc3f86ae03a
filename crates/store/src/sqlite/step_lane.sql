-- Counts the lane from n - 1 to n, for a live boot. What it does not find is looked into afterwards.
UPDATE lanes SET number = ?3
WHERE boot = ?1 AND lane = ?2 AND number = ?3 - 1
  AND EXISTS (SELECT 1 FROM runtime_workers WHERE boot = ?1 AND is_live = 1)
