INSERT INTO queue_more (id, slot, instance) VALUES (?3, ?1, ?2) ON CONFLICT DO NOTHING
