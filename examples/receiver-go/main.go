// Command receiver-go is an HTTP server that advertises its free capacity to its senders. It serves
// four batches at once, each in 20 ms. Each response is the number of batches received so far.
//
//	go run ./examples/receiver-go :8080
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/flow"
)

func main() {
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	var batches atomic.Int64
	take := func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		time.Sleep(20 * time.Millisecond) // the work
		fmt.Fprintln(w, batches.Add(1))
	}
	receiver := &flow.Receiver{Slots: 4}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, receiver.Handler(http.HandlerFunc(take))))
}
