SELECT now_ms() AS now_ms
