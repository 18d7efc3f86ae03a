-- How far a lane is.
SELECT l.batch_no, l.seq_first, l.seq_last, l.row_first, l.row_last, l.report,
       EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = l.boot AND w.is_live) AS is_live
FROM lanes l
WHERE l.boot = :boot::bigint AND l.lane = :lane::integer
