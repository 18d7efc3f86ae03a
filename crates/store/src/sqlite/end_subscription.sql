UPDATE subscriptions SET place = NULL WHERE no = ?1
