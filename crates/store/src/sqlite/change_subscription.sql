UPDATE subscriptions SET place = ?2, definition = ?3 WHERE no = ?1
