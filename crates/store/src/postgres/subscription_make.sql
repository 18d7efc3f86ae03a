INSERT INTO subscriptions (tenant, actor, stream, place, is_direct, is_live, kind, spec)
VALUES (:tenant::bigint, :actor::bigint, :stream::bigint, :place::integer, :direct::boolean, true, :kind::text,
        :spec::text)
RETURNING no
