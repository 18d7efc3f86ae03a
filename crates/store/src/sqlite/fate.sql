-- What has become of an event that came with an id: 0 waits, 1 dead letter, 2 parked, 3 done.
SELECT CASE
    WHEN EXISTS (SELECT 1 FROM queue_more WHERE tracked_seq = ?1) THEN 0
    WHEN EXISTS (SELECT 1 FROM pending WHERE stream = ?2 AND seq = ?1) THEN 0
    WHEN EXISTS (SELECT 1 FROM dead_letters WHERE seq = ?1) THEN 1
    WHEN EXISTS (SELECT 1 FROM parked WHERE seq = ?1) THEN 2
    ELSE 3 END
