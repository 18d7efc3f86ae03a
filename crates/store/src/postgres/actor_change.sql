UPDATE actors a SET is_indexed = :indexed::boolean, definition = :definition::text WHERE a.no = :actor::bigint
