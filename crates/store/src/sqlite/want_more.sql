UPDATE queue SET more = id WHERE slot = ?1 AND instance = ?2 AND id = ?3
