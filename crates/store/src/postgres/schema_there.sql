SELECT to_regclass('evener.schema_versions') IS NOT NULL AS is_there
