DELETE FROM dead_letters l WHERE l.id = ANY (:letters::bigint[]) AND l.tenant = :tenant::bigint
RETURNING l.id
