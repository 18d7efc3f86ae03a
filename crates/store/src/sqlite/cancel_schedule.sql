DELETE FROM scheduled_events WHERE tenant = ?1 AND id = ?2
