UPDATE runtime_workers SET last_seen = ?2, in_flight = ?3, active = ?4, routes = ?5
WHERE boot = ?1 AND is_live = 1
