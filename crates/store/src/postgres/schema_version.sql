SELECT coalesce(max(v.version), 0) AS version FROM evener.schema_versions v
