SELECT first, last, stream, at FROM runs WHERE first > ?1 AND first <= ?2 ORDER BY first
