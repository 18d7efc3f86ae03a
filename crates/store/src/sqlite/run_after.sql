SELECT first, last FROM runs INDEXED BY runs_by_stream
WHERE stream = ?1 AND first > ?2
ORDER BY first LIMIT 1
