-- Events up to that place that something names. The queue is read through, once for a pass: an index over
-- seq would be paid for by every event.
SELECT seq FROM queue WHERE seq <= ?1
UNION SELECT seq FROM pending WHERE seq <= ?1
UNION SELECT seq FROM dead_letters WHERE seq <= ?1
UNION SELECT seq FROM parked WHERE seq <= ?1
