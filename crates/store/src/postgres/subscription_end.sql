UPDATE subscriptions s SET is_live = false WHERE s.no = :subscription::bigint
