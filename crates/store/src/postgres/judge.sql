-- Silence is looked at again by the UPDATE itself: who has spoken in between is spared.
UPDATE runtime_workers w
SET is_live = false
WHERE w.boot = ANY (ARRAY(
    SELECT s.boot FROM runtime_workers s
    WHERE s.is_live AND s.boot <> :judge::bigint AND s.last_seen_ms < (SELECT now_ms()) - :stale::bigint
    ORDER BY s.boot
))
  AND w.is_live AND w.last_seen_ms < now_ms() - :stale::bigint
  AND EXISTS (SELECT 1 FROM runtime_workers j WHERE j.boot = :judge::bigint AND j.is_live)
RETURNING w.boot
