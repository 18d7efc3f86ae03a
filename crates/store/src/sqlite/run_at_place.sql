-- The first run from that place on, and when it came.
SELECT first, last, at FROM runs WHERE first >= ?1 ORDER BY first LIMIT 1
