UPDATE subscriptions s SET place = :place::integer, spec = :spec::text WHERE s.no = :subscription::bigint
