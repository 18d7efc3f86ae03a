SELECT s.name FROM streams s WHERE s.no = :stream::bigint
