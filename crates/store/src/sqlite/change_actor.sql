UPDATE actors SET is_indexed = ?2, definition = ?3 WHERE no = ?1
