UPDATE queue_more SET crashes = crashes + 1 WHERE id = ?1
