UPDATE scheduled_events SET fire_at = ?4 WHERE no = ?1 AND generation = ?2 AND fire_at = ?3
