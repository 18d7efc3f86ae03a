// The same server as ../src/main.rs, of Go's net/http: plaintext over HTTP/1 till it is killed.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"
	"time"
)

func main() {
	workers := flag.Int("workers", 1, "how many threads run Go code at once")
	port := flag.Int("port", 0, "where it listens on the loopback; 0: where the system likes")
	headSecs := flag.Int("head-secs", 0, "limit the time for the head of a request; 0: none")
	flag.Parse()
	runtime.GOMAXPROCS(*workers)

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	body := []byte("Hello, World!\n")
	server := http.Server{
		ReadHeaderTimeout: time.Duration(*headSecs) * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Write(body)
		}),
	}
	fmt.Println("LISTENING", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.Serve(listener))
}
