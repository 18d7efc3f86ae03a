-- The run of a stream that a place lies in, or the last one before it.
SELECT first, last FROM runs INDEXED BY runs_by_stream
WHERE stream = ?1 AND first <= ?2
ORDER BY first DESC LIMIT 1
