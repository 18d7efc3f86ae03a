SELECT seq, kind FROM events WHERE seq >= ?1 AND seq <= ?2 ORDER BY seq
