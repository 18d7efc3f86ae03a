-- All that is there becomes pending for a new subscription.
INSERT INTO pending (stream, seq, subscription, id)
SELECT e.stream, e.seq, :subscription::bigint, nextval('pending_id')
FROM events e
WHERE e.stream = :stream::bigint AND e.kind LIKE :pattern::text
