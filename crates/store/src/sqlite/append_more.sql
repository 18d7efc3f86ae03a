INSERT INTO queue_more
    (id, slot, instance, is_indexed, group_hash, group_text, priority, tracked_seq, origin)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
