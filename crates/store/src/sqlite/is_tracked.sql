-- Whether an append with the same id may ask what became of it. stream is 0 where there is none.
SELECT 1 FROM events e JOIN dedupe d ON d.tenant = ?2 AND d.stream = ?3 AND d.source = e.source AND d.id = e.id
WHERE e.seq = ?1 AND d.seq = ?1
