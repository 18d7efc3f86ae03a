SELECT a.no, a.name, a.is_indexed, a.definition FROM actors a WHERE a.tenant = :tenant::bigint ORDER BY a.no
