SELECT no, definition, is_indexed FROM actors WHERE tenant = ?1 AND name = ?2
