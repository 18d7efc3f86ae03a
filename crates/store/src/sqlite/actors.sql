SELECT no, name, is_indexed FROM actors WHERE tenant = ?1 ORDER BY no
