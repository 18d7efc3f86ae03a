INSERT INTO lanes (boot, lane, number) VALUES (?1, ?2, ?3)
