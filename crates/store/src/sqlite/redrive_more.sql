INSERT INTO queue_more (id, slot, instance, is_indexed, group_hash, group_text, priority, origin, tracked_seq)
SELECT ?3, slot, instance, is_indexed, group_hash, group_text, priority, origin,
       CASE WHEN is_tracked = 1 THEN seq END
FROM dead_letters WHERE id = ?2 AND tenant = ?1
