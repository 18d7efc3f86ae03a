module evener-bench-http

go 1.19
