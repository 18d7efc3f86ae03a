-- The next stream that has pending events: one search. Asked again and again.
SELECT stream FROM pending WHERE stream > ?1 ORDER BY stream LIMIT 1
