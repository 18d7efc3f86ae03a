DELETE FROM scheduled_events s WHERE s.tenant = :tenant::bigint AND s.id = :id::text RETURNING s.no
