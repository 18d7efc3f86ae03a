SELECT e.seq, e.time_ms, e.id AS event_id, e.source, e.kind, e.subject, e.content_type, e.headers, e.data
FROM events e
WHERE e.seq = ANY (:seqs::bigint[])
