DELETE FROM dedupe WHERE (tenant, stream, source, id) IN
    (SELECT tenant, stream, source, id FROM dedupe INDEXED BY dedupe_by_end
     WHERE expires <= ?1 ORDER BY expires LIMIT ?2)
