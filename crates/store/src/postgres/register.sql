INSERT INTO runtime_workers (name, last_seen_ms, is_live) VALUES (:name::text, now_ms(), true) RETURNING boot
