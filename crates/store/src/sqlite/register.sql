INSERT INTO runtime_workers (name, is_live, last_seen, in_flight, active, routes)
VALUES (?1, 1, ?2, 0, 0, 0)
RETURNING boot
