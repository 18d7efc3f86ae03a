DELETE FROM dedupe k
WHERE k.ctid = ANY (ARRAY(
    SELECT d.ctid FROM dedupe d
    WHERE d.expires_ms <= (SELECT now_ms())
    ORDER BY d.expires_ms
    LIMIT :rows_max::bigint
    FOR UPDATE SKIP LOCKED
))
  AND k.expires_ms <= now_ms()
RETURNING 1 AS gone
