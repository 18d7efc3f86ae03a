SELECT no, stream, definition FROM subscriptions WHERE actor = ?1 AND place IS NOT NULL ORDER BY place
