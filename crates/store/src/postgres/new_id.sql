SELECT gen_random_uuid()::text AS id
