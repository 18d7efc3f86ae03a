-- What is known under some ids, and what became of it. Runs in the transaction of the append: its rows are
-- locked there, so they cannot go in between.
SELECT x.n, k.seq, k.body_hash,
       EXISTS (SELECT 1 FROM queue q WHERE q.seq = k.seq OFFSET 0)
           OR EXISTS (SELECT 1 FROM pending p WHERE p.stream = x.stream AND p.seq = k.seq OFFSET 0) AS is_waiting,
       EXISTS (SELECT 1 FROM dead_letters l WHERE l.seq = k.seq OFFSET 0) AS is_dead,
       EXISTS (SELECT 1 FROM parked p WHERE p.seq = k.seq OFFSET 0) AS is_parked
FROM unnest(:dedupe_tenant::bigint[], :dedupe_stream::bigint[], :dedupe_source::text[], :dedupe_id::text[])
    WITH ORDINALITY AS x(tenant, stream, source, id, n)
CROSS JOIN LATERAL (
    SELECT k.seq, k.body_hash FROM dedupe k
    WHERE k.tenant = x.tenant AND k.stream = x.stream
      AND k.key = sha256(convert_to(length(x.source) || ':' || x.source || x.id, 'UTF8'))
    OFFSET 0
) k
ORDER BY x.n
