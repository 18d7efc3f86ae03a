UPDATE counters
SET seq = ?1, queue = ?2, instance = ?3, pending = ?4, schedule = ?5, letter = ?6, parked = ?7
WHERE one = 1
