INSERT INTO lanes (boot, lane, batch_no)
SELECT w.boot, :lane::integer, 0 FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live
ON CONFLICT (boot, lane) DO NOTHING
