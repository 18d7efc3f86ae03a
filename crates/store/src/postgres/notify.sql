SELECT pg_notify('evener', :payload::text)::text AS done
