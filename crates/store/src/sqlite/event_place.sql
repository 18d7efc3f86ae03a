-- What a row keeps of its event. The run that it is in begins at or before it.
SELECT nullif((SELECT stream FROM runs WHERE first <= ?1 ORDER BY first DESC LIMIT 1), 0),
       length(data)
FROM events WHERE seq = ?1
