DELETE FROM scheduled_events WHERE no = ?1 AND generation = ?2 AND fire_at = ?3
