SELECT seq, body_hash FROM dedupe WHERE tenant = ?1 AND stream = ?2 AND source = ?3 AND id = ?4
